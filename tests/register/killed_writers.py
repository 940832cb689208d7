"""Writers of one registry that are killed at random.

Each operation that has returned is a line in the file `done` beside the registry.
"""

import multiprocessing
import pathlib
import random
import time

from common.errors import UserError
from components.register.directory import DirectoryRegistry


def write(root, model, seed, done):
    """Adds, promotes, rolls back and deletes until it is killed."""
    store, chance = DirectoryRegistry(root), random.Random(seed)
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


def run(root, model, kills, writers=8):
    """Keeps the writers running until so many were killed, each after one more operation."""
    chance, running, done = random.Random(0), [], pathlib.Path(root).parent / "done"
    done.touch()
    processes = multiprocessing.get_context("forkserver")
    for started in range(kills):
        while len(running) < writers:
            process = processes.Process(target=write, args=(root, model, chance.random(), done))
            process.start()
            running.append(process)
        while len(done.read_bytes().splitlines()) <= started:
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.1))
        kill(running.pop(chance.randrange(writers)))
    for process in running:
        kill(process)


def kill(process):
    process.kill()
    process.join()
