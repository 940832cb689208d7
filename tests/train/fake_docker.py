"""Stands in for `docker` where there is no engine: a container is a process of this machine that outlives its client."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(os.environ["FAKE_DOCKER"])
ALONE = ("--init",)


def run(words: list[str]) -> int:
    options: dict[str, list[str]] = {}
    while words[0].startswith("--"):
        option = words.pop(0)
        options.setdefault(option, []).append("" if option in ALONE else words.pop(0))
    (name,), (entry,) = options["--name"], options["--entrypoint"]
    assert (ROOT / f"{options['--network'][0]}.network").exists()
    (ROOT / f"{name}.labels").write_text(json.dumps(options["--label"]))
    env = {variable: os.environ[variable] for variable in options["--env"] if variable in os.environ}
    program = sys.executable if entry == "python" else entry
    child = subprocess.Popen([program, *words[1:]], env=env, start_new_session=True)
    (ROOT / f"{name}.pid").write_text(str(child.pid))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: os.killpg(child.pid, number))
    code = child.wait()
    code = code if code >= 0 else 128 - code
    (ROOT / f"{name}.state").write_text(json.dumps({"Status": "exited", "ExitCode": code, "OOMKilled": code == 77}))
    return code


def remove(names: list[str]) -> int:
    for name in names:
        if (pid := ROOT / f"{name}.pid").exists():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(int(pid.read_text()), signal.SIGKILL)
            pid.unlink()
            (ROOT / f"{name}.labels").unlink(missing_ok=True)
            (ROOT / f"{name}.state").unlink(missing_ok=True)
    return 0


def found(kind: str, flags: list[str]) -> list[Path]:
    (label,) = (word.partition("label=")[2] for word in flags if "label=" in word)
    return [path for path in ROOT.glob(f"*.{kind}") if label in json.loads(path.read_text())]


def main(verb: str, *words: str) -> int:
    match verb, *words:
        case "run", *line:
            return run(line)
        case "rm", *line:
            return remove([word for word in line if not word.startswith("--")])
        case "ps", *flags:
            print("\n".join(path.stem for path in found("labels", flags)))
        case "inspect", *_, name:
            state = ROOT / f"{name}.state"
            print(state.read_text() if state.exists() else '{"Status": "created", "ExitCode": 0}')
        case "network", "create", *labels, name:
            assert not (ROOT / f"{name}.network").exists()
            (ROOT / f"{name}.network").write_text(json.dumps([label.removeprefix("--label=") for label in labels]))
        case "network", "inspect", form, name:
            labels = dict(label.split("=", 1) for label in json.loads((ROOT / f"{name}.network").read_text()))
            print(labels[form.split('"')[1]])
        case "network", "rm", name:
            (ROOT / f"{name}.network").unlink(missing_ok=True)
        case "network", "ls", *flags:
            print("\n".join(path.stem for path in found("network", flags)))
        case "info", *_:
            print('20.10.24 ["name=seccomp"]')
        case "image", "inspect", name:
            return int(name == "missing")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
