"""Stands in for `docker`: a container is a process of this machine that outlives its client."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(os.environ["FAKE_DOCKER"])


def run(words):
    at = words.index("--entrypoint")
    options = [word.partition("=") for word in words[:at]]
    values = {option: value for option, _, value in options}
    variables = [value for option, _, value in options if option == "--env"]
    entry, _image, *arguments = words[at + 1 :]
    name, network = values["--name"], values["--network"]
    assert (ROOT / f"{network}.network").exists()
    (ROOT / f"{name}.label").write_text(values["--label"])
    env = {variable: os.environ[variable] for variable in variables if variable in os.environ}
    program = sys.executable if entry == "python" else entry
    pid = ROOT / f"{name}.pid"
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: os.killpg(int(pid.read_text()), number))
    # As with an engine, a container can be found before its program runs, whatever becomes of this
    # client.
    child = subprocess.Popen(
        [program, *arguments],
        env=env,
        start_new_session=True,
        preexec_fn=lambda: pid.write_text(str(os.getpid())),
    )
    code = child.wait()
    return code if code >= 0 else 128 - code


def remove(names):
    for name in names:
        if (pid := ROOT / f"{name}.pid").exists():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(int(pid.read_text()), signal.SIGKILL)
        for path in ROOT.glob(f"{name}.*"):
            path.unlink()


def main(verb, *words):
    match verb, *words:
        case "run", *line:
            return run(line)
        case "rm", *line:
            remove([word for word in line if not word.startswith("--")])
        case "ps", *_, label:
            for path in ROOT.glob("*.label"):
                if path.read_text() == label.partition("label=")[2]:
                    print(path.stem)
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
