"""Stands in for gcloud in the tests of deploy: keeps resources and policies in a file, and records every call.

`COMMAND` is what the scripts find as gcloud: it asks a server here, as a Python for each call would
take longer than all else.

After gcloud's reference: `describe` fails of what is not there, `create` of what is, and a flag
that the command does not have is refused. What it cannot know is whether Google's own would do as
that says.
"""

import dataclasses
import functools
import json
import os
import pathlib
import socketserver
import subprocess
import threading
from collections.abc import Iterable
from typing import Any

import yaml

WIDE = {"--project", "--quiet", "--format", "--flatten", "--filter"}
POLICY = {"--member", "--role", "--condition", "--location"}
# By group of commands: what a resource of it may be created with, and its place; or by command.
FLAGS = {
    "projects": set(),
    "services": {"--enabled"},
    "storage buckets": {
        *("--location", "--uniform-bucket-level-access", "--public-access-prevention"),
        *("--lifecycle-file", "--update-labels"),
    },
    "artifacts repositories": {"--location", "--repository-format", "--labels"},
    "artifacts repositories set-cleanup-policies": {"--location", "--policy", "--no-dry-run"},
    "iam service-accounts": {"--display-name", "--description"},
    "iam roles": {"--permissions"},
    "resource-manager tags keys": {"--parent"},
    "resource-manager tags values": {"--parent", "--description"},
    "compute instance-groups managed": {"--zone"},
    "compute instance-templates": {
        *(
            "--machine-type",
            "--provisioning-model",
            "--image-family",
            "--image-project",
            "--boot-disk-size",
        ),
        *(
            "--service-account",
            "--scopes",
            "--metadata",
            "--metadata-from-file",
            "--labels",
            "--description",
        ),
    },
    "ai tensorboards": {"--display-name", "--region", "--labels"},
    "billing budgets": {
        *(
            "--billing-account",
            "--display-name",
            "--budget-amount",
            "--filter-projects",
            "--threshold-rule",
        ),
    },
    "builds triggers": {"--source"},
    "storage": set(),
}
VERBS = {
    "describe",
    "list",
    "create",
    "update",
    "delete",
    "enable",
    "import",
    "ls",
    "set-cleanup-policies",
}
_ROOT = pathlib.Path(__file__).parents[2]
READING = {"describe", "list", "ls", "get-iam-policy"}


def command() -> str:
    """What a gcloud that keeps all in the directory $FAKE_GCLOUD has to be."""
    return f"""#!/bin/bash
exec 3<>/dev/tcp/127.0.0.1/{_port()}
printf '%s\\0' $# "$FAKE_GCLOUD" "$PWD" "$@" >&3
read -r code <&3
IFS= read -r -d '' told <&3
printf %s "$told" >&$((1 + (code > 0)))
exit $code
"""


@functools.cache
def _port() -> int:
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Call)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


class _Call(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        sent = b""
        while not (sent.count(b"\0") and sent.count(b"\0") == int(sent.split(b"\0")[0]) + 3):
            sent += self.request.recv(65_536)
        _, home, here, *words = sent.decode().split("\0")[:-1]
        try:
            code, told = 0, main(pathlib.Path(home), pathlib.Path(here), words)
        except (AssertionError, RefusedError) as error:
            code, told = 1, f"ERROR: (gcloud) {error}"
        self.request.sendall(f"{code}\n{told}{chr(10) if told else ''}".encode())


@dataclasses.dataclass(frozen=True, kw_only=True)
class Project:
    """A project that gcloud finds."""

    home: pathlib.Path
    name: str

    @classmethod
    def begin(cls, home: pathlib.Path, name: str, things: dict[str, Iterable[str]]) -> "Project":
        """An empty project; `things` are those of others, by group of commands."""
        home.mkdir(exist_ok=True)
        (home / "gcloud").write_text(command())
        (home / "gcloud").chmod(0o755)
        groups = {group: {name: {} for name in names} for group, names in things.items()}
        groups["projects"] = {name: {}, **groups.get("projects", {})}
        state = {"project": name, "objects": [], "things": groups, "policies": {}}
        (home / "state.json").write_text(json.dumps(state))
        return cls(home=home, name=name)

    def setup(self, *flags: str, answer: str = "", code: int = 0) -> str:
        """Runs deploy/setup, which has to end with `code`; returns what it prints."""
        env = {
            **os.environ,
            "PATH": f"{self.home}:{os.environ['PATH']}",
            "FAKE_GCLOUD": str(self.home),
        }
        line = [_ROOT / "deploy/setup", "--project", self.name, *flags]
        done = subprocess.run(
            line, cwd=_ROOT, env=env, input=answer, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def state(self) -> dict[str, Any]:
        return json.loads((self.home / "state.json").read_text())

    def changes(self) -> list[str]:
        """The calls since the last time that were not for reading."""
        path = self.home / "calls.jsonl"
        calls = (
            [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        )
        path.unlink(missing_ok=True)
        return [f"{call['group']} {call['verb']}" for call in calls if call["verb"] not in READING]

    def bindings(self) -> list[tuple[str, str, str, str]]:
        """Resource, role, member and condition of every binding; a resource of no name of its own is below the project."""
        policies = self.state()["policies"]
        places = {"projects": "projects/", "artifacts repositories": f"{self.name}/"}
        return [
            (places.get(group, "") + name, *bound)
            for group, resources in policies.items()
            for name, policy in resources.items()
            for bound in policy
        ]


class RefusedError(Exception):
    """What gcloud says and ends with 1."""


def main(home: pathlib.Path, here: pathlib.Path, words: list[str]) -> str:
    """Keeps what a call changes; returns what it prints."""
    if words == ["auth", "print-access-token"]:
        return "of-no-worth"
    state = json.loads((home / "state.json").read_text())
    flags, plain = {}, []
    words = iter(words)
    for word in words:
        name, equals, value = word.partition("=")
        if name == "--project":
            value = value or next(words)
        if word.startswith("--"):
            flags.setdefault(name, []).append(value if equals else True)
        else:
            plain.append(word)
    verb = next(
        word
        for word in plain
        if word in VERBS or word.endswith("-iam-policy") or "-iam-policy-" in word
    )
    at = plain.index(verb)
    group, names = " ".join(plain[:at]), plain[at + 1 :]
    unknown = (
        set(flags)
        - WIDE
        - (POLICY if "iam-policy" in verb else FLAGS.get(f"{group} {verb}", FLAGS[group]))
    )
    assert not unknown, f"gcloud {group} {verb} has no {unknown}"
    with (home / "calls.jsonl").open("a") as log:
        log.write(json.dumps({"group": group, "verb": verb, "names": names, "flags": flags}) + "\n")
    told = answer(state, here, group, verb, names, flags)
    (home / "state.json").write_text(json.dumps(state))
    return told


def answer(
    state: dict, here: pathlib.Path, group: str, verb: str, names: list[str], flags: dict
) -> str:
    things, policies = (
        state["things"].setdefault(group, {}),
        state["policies"].setdefault(group, {}),
    )
    name = names[0] if names else ""
    if verb in ("create", "import", "enable"):
        file = (here / flags["--source"][0]).read_text() if verb == "import" else ""
        if file:
            name = file.split("name: ")[1].split("\n")[0]
        if group == "iam service-accounts":
            name = f"{name}@{state['project']}.iam.gserviceaccount.com"
        if "--parent" in flags:
            name = f"{flags['--parent'][0].removeprefix('projects/')}/{name}"
        for each in names if verb == "enable" else [name or flags["--display-name"][0]]:
            if each in things and verb == "create":
                raise RefusedError(f"{each} already exists")
            things[each] = (
                {"file": file, "description": yaml.safe_load(file)["description"]} if file else {}
            )
            if "--description" in flags:
                things[each]["description"] = flags["--description"][-1]
            if (
                "--labels" in flags and group != "compute instance-templates"
            ):  # there they are the machines'
                things[each]["labels"] = labels(flags["--labels"])
    elif verb == "list":
        key, _, wanted = str(flags.get("--filter", ["name="])[0]).partition("=")
        return "\n".join(
            name
            for name, thing in things.items()
            if wanted.strip("'") in ("", field(name, thing, key))
        )
    elif verb == "ls":
        return "\n".join(state["objects"])
    elif name not in things:
        raise RefusedError(f"NOT_FOUND: {group} {name}")
    elif verb == "describe":
        keys = flags.get("--format", ["value(name)"])[0].removeprefix("value(").removesuffix(")")
        return "\t".join(field(name, things[name], key) for key in keys.split(","))
    elif verb == "update":
        for file in flags.get("--lifecycle-file", ()):
            json.loads((here / file).read_text())
        things[name]["labels"] = things[name].get("labels", {}) | labels(flags["--update-labels"])
    elif verb == "set-cleanup-policies":
        if "--location" not in flags or not {"--policy", "--no-dry-run"} & flags.keys():
            raise RefusedError("Must be specified: --location, and --policy or --no-dry-run")
        things[name]["cleanupPolicies"] = dict.fromkeys(
            cleanup_policies(here / flags["--policy"][0]), ""
        )
    elif verb == "delete":
        del things[name]
        policies.pop(name, None)
    elif verb == "get-iam-policy":
        return "\n".join("\t".join(binding[:2]) for binding in policies.get(name, []))
    else:
        condition = flags.get("--condition", [""])[0]
        if not condition and any(binding[2] for binding in policies.get(name, ())):
            raise RefusedError("a policy with conditions asks for --condition=None")
        binding = [flags["--role"][0], flags["--member"][0], condition.removeprefix("None")]
        member = binding[1].removeprefix("serviceAccount:")
        ours = member.endswith(f"@{state['project']}.iam.gserviceaccount.com")
        if ours and member not in state["things"]["iam service-accounts"]:
            raise RefusedError(f"{member} does not exist")
        bound = policies.setdefault(name, [])
        (bound.append if verb == "add-iam-policy-binding" else bound.remove)(binding)
    return ""


def labels(values: list[str]) -> dict[str, str]:
    return dict(pair.split("=") for value in values for pair in value.split(","))


def field(name: str, thing: dict, key: str) -> str:
    """A field of a resource as `--format` and `--filter` have it, a map as `KEY=VALUE;KEY=VALUE`."""
    known = {"name": name, "displayName": name, "projectNumber": "123456789", "labels": {}, **thing}
    if key.startswith("labels."):
        return known["labels"].get(key.removeprefix("labels."), "")
    value = known.get(key, "")
    return ";".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else value


def cleanup_policies(file: pathlib.Path) -> list[str]:
    """Names of the policies in a file, of which gcloud refuses what the parser of its `cleanup_policy_util` does."""
    names = []
    for policy in json.loads(file.read_text()):
        names.append(policy["name"])
        if ("condition" in policy) == ("mostRecentVersions" in policy):
            raise RefusedError(
                f'One of "condition" or "mostRecentVersions" in policy "{names[-1]}"'
            )
        if policy["action"]["type"] not in ("Delete", "Keep"):
            raise RefusedError(f"Invalid action {policy['action']}")
        unknown = policy.get("condition", {}).keys() - {"tagState", "tagPrefixes", "olderThan"}
        unknown |= policy.get("mostRecentVersions", {}).keys() - {"keepCount"}
        if unknown or policy.keys() - {"name", "action", "condition", "mostRecentVersions"}:
            raise RefusedError(f'Unknown fields in policy "{names[-1]}"')
    if len(set(names)) < len(names):
        raise RefusedError(f"Duplicate key in {names}")
    return names
