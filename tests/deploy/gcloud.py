"""Stands in for gcloud: keeps resources and policies in a file, and records every call.

`command` makes what the scripts find as gcloud: it asks a server here, as a Python for each call
would take longer than all else.

After gcloud's reference: `describe` fails of what is not there, `create` of what is, and a flag
that the command does not have is refused. What it cannot know is whether Google's own would do as
that says.
"""

import dataclasses
import functools
import json
import os
import pathlib
import shlex

import yaml
from google.api_core import exceptions

from tests.cloud.front import Answer, Front
from tests.deploy.calls import GOOGLE
from tests.programs import install, run

READING = ("describe", "list", "ls", "get-iam-policy")


def command():
    """Returns the program of a gcloud that keeps all in the directory $FAKE_GCLOUD."""
    url = f"http://127.0.0.1:{_server().server_port}"
    curl = f"/usr/bin/curl --noproxy '*' --silent --show-error --fail --data-binary @- {url}"
    return f"""#!/bin/sh\nprintf '%s\\0' "$FAKE_GCLOUD" "$PWD" "$@" | {curl}\n"""


@functools.cache
def _server():
    return Front(0, _serve)


def _serve(request):
    home, here, *words = request.body.decode().split("\0")[:-1]
    try:
        text = _run(pathlib.Path(home), pathlib.Path(here), words)
    except AssertionError as error:
        raise exceptions.BadRequest(str(error)) from error
    return Answer(200, f"{text}\n".encode() if text else b"")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Project:
    """A project that gcloud finds."""

    home: pathlib.Path
    name: str

    @classmethod
    def begin(cls, home, name, things):
        """An empty project; `things` are those of others, by group of commands."""
        install(home / "gcloud", command())
        groups = {group: {name: {} for name in names} for group, names in things.items()}
        groups.setdefault("projects", {})[name] = {}
        project = cls(home=home, name=name)
        project.save({"project": name, "objects": [], "things": groups, "policies": {}})
        return project

    def setup(self, flags="", answer="", code=0):
        """Runs deploy/setup, which has to end with `code`; returns what it prints."""
        env = {"PATH": f"{self.home}:{os.environ['PATH']}", "FAKE_GCLOUD": str(self.home)}
        line = ["deploy/setup", "--project", self.name, *shlex.split(flags)]
        return run(*line, code=code, typed=answer, env=env)

    def state(self):
        return json.loads((self.home / "state.json").read_text())

    def save(self, state):
        (self.home / "state.json").write_text(json.dumps(state))

    def things(self):
        """All resources that there are, by group of commands; services stay on."""
        things = self.state()["things"].items()
        return {group: those for group, those in things if those and group != "services"}

    def calls(self):
        """The calls since the last time that were not for reading."""
        path = self.home / "calls.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return [call for call in map(json.loads, lines) if call["verb"] not in READING]

    def changes(self):
        """Their commands."""
        return [f"{call['group']} {call['verb']}" for call in self.calls()]

    def bindings(self):
        """Resource (below the project, if its name is not its own), role, member, condition."""
        places = {"projects": "projects/", "artifacts repositories": f"{self.name}/"}
        return [
            (places.get(group, "") + name, *bound)
            for group, resources in self.state()["policies"].items()
            for name, policy in resources.items()
            for bound in policy
        ]


def _run(home, here, words):
    """Keeps what a call changes; returns what it prints."""
    if words == ["auth", "print-access-token"]:
        return "of-no-worth"
    flags = {}
    plain = []
    words = iter(words)
    for word in words:
        name, equals, value = word.partition("=")
        if word == "--project":
            next(words)
        if word.startswith("--"):
            flags.setdefault(name, []).append(value if equals else True)
        else:
            plain.append(word)
    at = next(i for i, word in enumerate(plain) if word in GOOGLE["verbs"])
    group, verb, names = " ".join(plain[:at]), plain[at], plain[at + 1 :]
    own = GOOGLE["flags"].get(f"{group} {verb}", GOOGLE["flags"][group])
    known = GOOGLE["flags"]["iam-policy"] if "iam-policy" in verb else own
    unknown = set(flags) - {*known, *GOOGLE["flags"][""]}
    assert not unknown, f"gcloud {group} {verb} has no {unknown}"
    with (home / "calls.jsonl").open("a") as log:
        log.write(json.dumps({"group": group, "verb": verb, "names": names, "flags": flags}) + "\n")
    state = json.loads((home / "state.json").read_text())
    text = _answer(state, here, group, verb, names, flags)
    (home / "state.json").write_text(json.dumps(state))
    return text


def _answer(state, here, group, verb, names, flags):
    things = state["things"].setdefault(group, {})
    policies = state["policies"].setdefault(group, {})
    name = names[0] if names else ""
    match verb:
        case "enable":
            things |= {name: {} for name in names}
        case "import":
            text = (here / flags["--source"][0]).read_text()
            about = yaml.safe_load(text)
            things[about["name"]] = {"file": text, "description": about["description"]}
        case "create":
            name = name or flags["--display-name"][0]
            if group == "iam service-accounts":
                name = f"{name}@{state['project']}.iam.gserviceaccount.com"
            if "--parent" in flags:
                name = f"{flags['--parent'][0].removeprefix('projects/')}/{name}"
            assert name not in things, f"{name} already exists"
            description = flags.get("--description", [""])[-1]
            labels = _labels(flags.get("--labels", []))
            things[name] = {"description": description, "labels": labels}
        case "list":
            key, _, wanted = flags.get("--filter", ["name="])[0].partition("=")
            return "\n".join(
                name for name, thing in things.items() if wanted in ("", _field(name, thing, key))
            )
        case "ls":
            return "\n".join(state["objects"])
        case _ if name not in things:
            raise AssertionError(f"NOT_FOUND: {group} {name}")
        case "describe":
            keys = flags.get("--format", ["value(name)"])[0].removeprefix("value(")[:-1]
            return "\t".join(_field(name, things[name], key) for key in keys.split(","))
        case "update":
            things[name].setdefault("labels", {}).update(_labels(flags["--update-labels"]))
        case "set-cleanup-policies":
            assert {"--location", "--policy", "--no-dry-run"} <= flags.keys()
            policies = json.loads((here / flags["--policy"][0]).read_text())
            things[name]["cleanupPolicies"] = {policy["name"]: "" for policy in policies}
        case "delete":
            del things[name]
            policies.pop(name, None)
        case "get-iam-policy":
            return "\n".join("\t".join(binding[:2]) for binding in policies.get(name, []))
        case _:
            bindings = policies.setdefault(name, [])
            condition = flags.get("--condition", [""])[0]
            is_conditional = any(binding[2] for binding in bindings)
            assert condition or not is_conditional, "there are conditions: --condition=None"
            [role], [member] = flags["--role"], flags["--member"]
            email = member.removeprefix("serviceAccount:")
            if email.endswith(f"@{state['project']}.iam.gserviceaccount.com"):
                assert email in state["things"]["iam service-accounts"], f"{email} does not exist"
            change = bindings.append if verb == "add-iam-policy-binding" else bindings.remove
            change([role, member, condition.removeprefix("None")])
    return ""


def _labels(values):
    return dict(pair.split("=") for value in values for pair in value.split(","))


def _field(name, thing, key):
    """A field as `--format` and `--filter` have it, a map as `KEY=VALUE;KEY=VALUE`."""
    known = {"name": name, "displayName": name, "projectNumber": "123456789", **thing}
    if key.startswith("labels."):
        return known.get("labels", {}).get(key.removeprefix("labels."), "")
    value = known.get(key, "")
    return ";".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else value
