"""Keys of a run on Vertex AI, and checks of them that send no request."""

import dataclasses
import re
from collections.abc import Iterable

from common.cli import Flags, as_list, flag
from common.errors import UserError
from common.flags import at_least, positive
from components.register import serving
from components.train.backends.job_settings import (
    DEFAULT_REGION,
    PROJECT,
    REGION,
    JobSettings,
    account,
    matching,
)
from components.train.cluster.cluster_file import Cluster
from components.train.cluster.lookup import load_cluster
from pipelines import training
from pipelines.arguments import FLAGS, SHARED
from pipelines.config import Config, Keys

DEFAULT_CLUSTER = "clusters/vertex-cpu.yaml"
# Steps whose CPUs and memory can be set: those that run on a machine of their own, and are not
# Google's components.
STEPS = tuple(step.__name__ for step in training.STEPS if step not in training.LOCAL_STEPS)
# Keys that are required, each with a regular expression for its value and an example.
NEEDED = {
    "project": (PROJECT, "my-project"),
    "location": (REGION, DEFAULT_REGION),
    "bucket": (r"gs://[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]", "gs://my-bucket"),
    "image": (
        serving.IMAGE,
        f"us-docker.pkg.dev/my-project/training/tfrecord-training@sha256:{'0' * 64}",
    ),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class CloudOptions(Flags):
    """Keys of a run on Vertex AI."""

    project: str | None = flag(str, "id of the project (None: GOOGLE_CLOUD_PROJECT)", metavar="ID")
    location: str = flag(str, "region", default=DEFAULT_REGION, metavar="REGION")
    bucket: str | None = flag(str, "gs://BUCKET for everything that the run writes, in that region")
    service_account: str | None = flag(
        account, "that the run acts as (None: the project's default)"
    )
    step_resources: str | tuple[str, ...] | None = flag(
        matching(
            rf"({'|'.join(STEPS)})=[1-9]\d{{0,2}}:[1-9]\d{{0,4}}G",
            f"STEP=CPUS:MEMORY, such as convert=8:32G, of {', '.join(STEPS)}",
            "STEP=CPUS:MEMORY",
        ),
        "of a step's machine (None: 4:16G)",
        several=True,
    )
    scheduling: str | None = flag(
        ("STANDARD", "SPOT"),
        "how machines are obtained (None: as the cluster file says; so the next two)",
    )
    timeout: str | None = flag(str, "of the training, all attempts together: 90m, 12h, 7d")
    max_restarts: int | None = flag(
        at_least(0), "further attempts after failures, and after preemptions"
    )
    max_machine_hours: float | None = flag(positive, "of the training, all attempts together")


KEYS = Keys(
    options={**SHARED, CloudOptions: (), JobSettings: ()},
    flags=(*FLAGS, "project", "location", "bucket", "service_account"),
)


def check_place(args: Config, keys: Iterable[str] = NEEDED) -> None:
    """Checks the keys that say where, and in which image, a run takes place.

    Args:
      args: Values of the keys.
      keys: Which of `project`, `location`, `bucket` and `image` to check; by default all.

    Raises:
      UserError: If one is missing or malformed.
    """
    for key in keys:
        form, example = NEEDED[key]
        if not re.fullmatch(form, getattr(args, key) or ""):
            raise UserError(
                f"--{key} {getattr(args, key) or 'is missing'}: give one such as {example}"
            )


def cluster_of(config: Config, default: str = DEFAULT_CLUSTER) -> Cluster:
    """Returns the cluster of a run, with the scheduling that its keys give.

    Prints a line on standard error for each key of the file that is replaced, translated or not
    used.

    Args:
      config: Keys of the run.
      default: Cluster file if the key `cluster` is not given.

    Raises:
      UserError: If the cluster file cannot be used, or does not fit the keys.
    """
    return scheduled_as(
        load_cluster(config.cluster or default, as_list(config.trainer_flags)), config
    )


def scheduled_as(cluster: Cluster, config: Config) -> Cluster:
    """Returns a cluster in which the scheduling keys that are given replace its own.

    They are `scheduling`, `timeout` and `max_restarts`.

    Raises:
      UserError: If the value of a key is not allowed in a cluster file.
    """
    flags = {
        "strategy": config.scheduling,
        "timeout": config.timeout,
        "max_restarts": config.max_restarts,
    }
    content = cluster.model_dump(exclude_none=True)
    content["scheduling"] |= {key: value for key, value in flags.items() if value is not None}
    return Cluster.read(content)
