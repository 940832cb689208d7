"""Writers of one registry that are killed at random.

`python killed_writers.py REGISTRY MODEL_DIR WRITERS KILLS SEED`.

Each operation that has returned is a line in the file `done` beside the registry.
"""

import os
import pathlib
import random
import signal
import sys
import time

from common.errors import UserError
from components.register.directory import DirectoryRegistry


def write(root, model, chance, done):
    """Adds, promotes, rolls back and deletes until it is killed."""
    store = DirectoryRegistry(root)
    with done.open("a", buffering=1) as file:
        while True:
            verb = chance.choice(("add", "add", "promote", "rollback", "delete"))
            versions = [version.number for version in store.versions("m")]
            version = chance.choice(versions) if versions else ""
            try:
                if verb == "add":
                    version = store.register("m", model, {})
                elif verb == "promote" and not store.promote("m", version):
                    continue
                elif verb == "rollback":
                    version = store.rollback("m")
                elif verb == "delete":
                    store.delete("m", version)
            except UserError:
                continue  # The version was deleted by another writer, or has an alias.
            file.write(f"{verb} {version}\n")


def main(root, model, writers, kills, seed):
    """Keeps so many writers running until so many were killed, each after one more operation."""
    chance, running, done = random.Random(seed), [], pathlib.Path(root).parent / "done"
    done.touch()
    for started in range(kills):
        while len(running) < writers:
            if not (pid := os.fork()):
                write(root, model, random.Random(chance.random()), done)
            running.append(pid)
            chance.random()  # The next one does something else.
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
