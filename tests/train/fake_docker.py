"""Stands in for `docker`: a container is a process of this machine, in place of its client."""

import os
import sys
from pathlib import Path

ROOT = Path(os.environ["FAKE_DOCKER"])


def run(words):
    at = words.index("--entrypoint")
    options = [word.partition("=") for word in words[:at]]
    (network,) = (value for option, _, value in options if option == "--network")
    assert (ROOT / f"{network}.network").exists()
    variables = [value for option, _, value in options if option == "--env"]
    env = {variable: os.environ[variable] for variable in variables if variable in os.environ}
    entry, _image, *arguments = words[at + 1 :]
    program = sys.executable if entry == "python" else entry
    os.execvpe(program, [program, *arguments], env)


def main(verb, *words):
    match verb, *words:
        case "run", *line:
            run(line)
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
