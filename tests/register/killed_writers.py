"""Writers of one registry who are killed at random: `python killed_writers.py REGISTRY MODEL_DIR WRITERS KILLS SEED`.

What a writer has done it says in the file `done` beside the registry, after that has returned.
"""

import os
import pathlib
import random
import signal
import sys
import time

from common.errors import UserError
from components.register.directory import DirectoryRegistry


def write(root: str, model: str, chance: random.Random, done: pathlib.Path) -> None:
    """Adds, promotes, rolls back and deletes until it is killed."""
    store = DirectoryRegistry(root)
    with done.open("a", buffering=1) as said:
        while True:
            what = chance.choice(("add", "add", "promote", "rollback", "delete"))
            versions = [version.number for version in store.versions("m")]
            version = chance.choice(versions) if versions else ""
            try:
                if what == "add":
                    version = store.register("m", model, {"run": f"{os.getpid()}-{chance.random()}"})
                elif what == "promote" and not store.promote(
                    "m", version, instead_of=store.aliases("m").get("champion")
                ):
                    continue
                elif what == "rollback":
                    version = store.rollback("m")
                elif what == "delete":
                    store.delete("m", version)
            except UserError:
                continue  # of one that another has deleted, or that has an alias
            said.write(f"{what} {version}\n")


def main(root: str, model: str, writers: int, kills: int, seed: int) -> None:
    """Keeps so many writers running until so many were killed, not faster than they do something."""
    chance, running, done = random.Random(seed), [], pathlib.Path(root).parent / "done"
    done.touch()
    for started in range(kills):
        while len(running) < writers:
            if not (pid := os.fork()):
                write(root, model, random.Random(chance.random()), done)
            running.append(pid)
            chance.random()  # that the next one does something else
        while len(done.read_bytes().splitlines()) <= started:
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.1))
        os.kill(pid := running.pop(chance.randrange(writers)), signal.SIGKILL)
        os.waitpid(pid, 0)
    for pid in running:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
