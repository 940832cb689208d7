"""Stands in for gcloud in the tests of deploy: keeps resources and policies in a file, and records every call.

After gcloud's reference: `describe` fails of what is not there, `create` of what is, and a flag that the command does not
have is refused. What it cannot know is whether Google's own would do as that says.
"""

import json
import os
import pathlib
import sys

HOME = pathlib.Path(os.environ.get("FAKE_GCLOUD", "."))
WIDE = {"--project", "--quiet", "--format", "--flatten", "--filter"}
POLICY = {"--member", "--role", "--condition", "--location"}
# By group of commands: what a resource of it may be created with, and its place.
FLAGS = {
    "projects": set(),
    "services": {"--enabled"},
    "storage buckets": {
        *("--location", "--uniform-bucket-level-access", "--public-access-prevention"),
        *("--lifecycle-file", "--update-labels"),
    },
    "artifacts repositories": {"--location", "--repository-format"},
    "iam service-accounts": {"--display-name"},
    "iam roles": {"--permissions"},
    "resource-manager tags keys": {"--parent"},
    "resource-manager tags values": {"--parent"},
    "compute instance-groups managed": {"--zone"},
    "compute instance-templates": {
        *("--machine-type", "--provisioning-model", "--image-family", "--image-project", "--boot-disk-size"),
        *("--service-account", "--scopes", "--metadata", "--metadata-from-file"),
    },
    "ai tensorboards": {"--display-name", "--region"},
    "billing budgets": {
        *("--billing-account", "--display-name", "--budget-amount", "--filter-projects", "--threshold-rule"),
    },
    "builds triggers": {"--source"},
    "storage": set(),
}
VERBS = {"describe", "list", "create", "update", "delete", "enable", "import", "ls"}
READING = {"describe", "list", "ls", "get-iam-policy"}


def main(words: list[str]) -> int:
    if words == ["auth", "print-access-token"]:
        print("of-no-worth")
        return 0
    state = json.loads((HOME / "state.json").read_text())
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
    verb = next(word for word in plain if word in VERBS or word.endswith("-iam-policy") or "-iam-policy-" in word)
    at = plain.index(verb)
    group, names = " ".join(plain[:at]), plain[at + 1 :]
    unknown = set(flags) - WIDE - (POLICY if "iam-policy" in verb else FLAGS[group])
    assert not unknown, f"gcloud {group} {verb} has no {unknown}"
    with (HOME / "calls.jsonl").open("a") as log:
        log.write(json.dumps({"group": group, "verb": verb, "names": names, "flags": flags}) + "\n")
    code = answer(state, group, verb, names, flags)
    (HOME / "state.json").write_text(json.dumps(state))
    return code


def answer(state: dict, group: str, verb: str, names: list[str], flags: dict) -> int:
    things, policies = state["things"].setdefault(group, {}), state["policies"].setdefault(group, {})
    name = names[0] if names else ""
    if verb in ("create", "import", "enable"):
        file = pathlib.Path(flags["--source"][0]).read_text() if verb == "import" else ""
        if file:
            name = file.split("name: ")[1].split("\n")[0]
        if group == "iam service-accounts":
            name = f"{name}@{state['project']}.iam.gserviceaccount.com"
        if "--parent" in flags:
            name = f"{flags['--parent'][0].removeprefix('projects/')}/{name}"
        for each in names if verb == "enable" else [name or flags["--display-name"][0]]:
            if each in things and verb == "create":
                return refuse(f"{each} already exists")
            things[each] = {"file": file} if file else {}
    elif verb == "list":
        wanted = str(flags.get("--filter", [""])[0]).partition("=")[2].strip("'")
        print("\n".join(each for each in things if not wanted or each == wanted))
    elif verb == "ls":
        print("\n".join(state["objects"]))
    elif name not in things:
        return refuse(f"NOT_FOUND: {group} {name}")
    elif verb == "describe":
        if flags.get("--format") == ["value(labels.lifecycle)"]:
            print(things[name].get("lifecycle", ""))
        elif flags.get("--format") == ["value(projectNumber)"]:
            print("123456789")
    elif verb == "update":
        json.loads(pathlib.Path(flags["--lifecycle-file"][0]).read_text())
        things[name] |= dict([flags["--update-labels"][0].split("=")])
    elif verb == "delete":
        del things[name]
        policies.pop(name, None)
    elif verb == "get-iam-policy":
        print("\n".join("\t".join(binding) for binding in policies.get(name, [])))
    else:
        binding = [flags["--role"][0], flags["--member"][0]]
        member = binding[1].removeprefix("serviceAccount:")
        ours = member.endswith(f"@{state['project']}.iam.gserviceaccount.com")
        if ours and member not in state["things"]["iam service-accounts"]:
            return refuse(f"{member} does not exist")
        bound = policies.setdefault(name, [])
        (bound.append if verb == "add-iam-policy-binding" else bound.remove)(binding)
    return 0


def refuse(why: str) -> int:
    print(f"ERROR: (gcloud) {why}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
