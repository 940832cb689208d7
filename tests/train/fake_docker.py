"""Stands in for `docker` where there is no engine: a container is a process of this machine that outlives its client."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(os.environ["FAKE_DOCKER"])


def run(words: list[str]) -> int:
    options: dict[str, list[str]] = {}
    while words[0].startswith("--"):
        option, equals, value = words.pop(0).partition("=")
        options.setdefault(option, []).append(value if equals else words.pop(0))
    (name,), (entry,), (network,) = options["--name"], options["--entrypoint"], options["--network"]
    assert (ROOT / f"{network}.network").exists()
    (ROOT / f"{name}.label").write_text(options["--label"][0])
    env = {
        variable: os.environ[variable] for variable in options["--env"] if variable in os.environ
    }
    program = sys.executable if entry == "python" else entry
    pid = ROOT / f"{name}.pid"
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: os.killpg(int(pid.read_text()), number))
    # As with an engine, a container can be found before its program runs, whatever becomes of this
    # client.
    child = subprocess.Popen(
        [program, *words[1:]],
        env=env,
        start_new_session=True,
        preexec_fn=lambda: pid.write_text(str(os.getpid())),
    )
    code = child.wait()
    return code if code >= 0 else 128 - code


def remove(names: list[str]) -> None:
    for name in names:
        if (pid := ROOT / f"{name}.pid").exists():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(int(pid.read_text()), signal.SIGKILL)
        for path in ROOT.glob(f"{name}.*"):
            path.unlink()


def main(verb: str, *words: str) -> int:
    match verb, *words:
        case "run", *line:
            return run(line)
        case "rm", *line:
            remove([word for word in line if not word.startswith("--")])
        case "ps", *_, label:
            paths = ROOT.glob("*.label")
            print(
                "\n".join(
                    path.stem for path in paths if path.read_text() == label.partition("label=")[2]
                )
            )
        case "network", "create", name:
            (ROOT / f"{name}.network").touch(exist_ok=False)
        case "network", "rm", name:
            (ROOT / f"{name}.network").unlink(missing_ok=True)
        case "info", *_:
            print('20.10.24 ["name=seccomp"]')
        case "image", "inspect", name:
            return int(name == "missing")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
