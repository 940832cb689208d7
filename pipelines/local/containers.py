"""The containers of a run's steps: `python -m pipelines.local.containers RUN` removes those of a run whose process is gone."""

import contextlib
import sys
import time
from collections.abc import Iterator

import docker
from components.train.backends.engine_client import caller
from pipelines.local.record import RunRecord
from trainer.base.errors import UserError, first_line

_LATE_S = 3.0  # until the engine has made what the process had asked it for when it was killed


@contextlib.contextmanager
def engine() -> Iterator[docker.DockerClient]:
    """The engine, if it answers."""
    try:
        client = docker.from_env()
    except docker.errors.DockerException as error:
        raise UserError(f"no container engine: {first_line(error)}; start Docker, or use --runner subprocess") from None
    with contextlib.closing(client):
        yield client


def user() -> str:
    """The user of a step's container, so that what it writes is this user's."""
    with engine() as client:
        return caller(rootless="name=rootless" in client.info()["SecurityOptions"])


def remove(run: str) -> None:
    """Removes all that there are, whether they run or not."""
    with engine() as client:
        for container in client.containers.list(all=True, filters={"label": f"{RunRecord.label}={run}"}):
            with contextlib.suppress(docker.errors.APIError):  # it is being removed already
                container.remove(force=True)


if __name__ == "__main__":
    remove(sys.argv[1])
    time.sleep(_LATE_S)
    remove(sys.argv[1])
