"""Settings of a training job on Vertex AI beside its machines.

    settings = JobSettings(network="projects/123456/global/networks/default", env=("LEVEL=2",))
    settings.arguments(cluster, run="training-1")
    # Arguments of `CustomTrainingJobOp`: {"network": ..., "labels": ..., "strategy": ..., ...}

The pipeline and jobs without a pipeline (`--backend vertex`) use them. The rules are from Vertex
AI's reference of `CustomJobSpec`, and from its guides to custom training.
"""

import dataclasses
import datetime
import functools
import re
import secrets
from typing import Any

import pydantic.dataclasses

from common.cli import Flags, as_list, flag
from common.errors import UserError
from common.flags import Kind
from common.google_cloud import MANAGED_BY
from components.train.cluster.cluster_file import Cluster
from trainer.cluster.member import POOL_GPUS, POOL_ROLES

DEFAULT_REGION = "us-central1"
# Regular expressions for the id of a project and the name of a region.
PROJECT = r"[a-z][a-z0-9-]{4,28}[a-z0-9]"
REGION = r"[a-z]+-[a-z]+\d+"


def new_name() -> str:
    """Returns a new name for a run or a job, such as `training-20300131-235959-0a1b`.

    It has the local time, and a random suffix that tells apart names of the same second.
    """
    return f"training-{datetime.datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def matching(pattern: str, meaning: str, metavar: str) -> Kind:
    """Returns the type of a flag whose text must match a pattern.

    Args:
      pattern: Regular expression that the whole text must match.
      meaning: Description of the allowed texts, with an example, for the error message.
      metavar: Placeholder for a value in the help.
    """
    return Kind(str, lambda text: bool(re.fullmatch(pattern, text)), meaning, metavar)


def _resource(example: str) -> Kind:
    """Returns the type of a flag that takes the name of a resource.

    A word of capital letters behind a slash in the example, up to the next slash or the end,
    matches any text of letters, digits and `.:_-`.
    """
    return matching(
        re.sub("(?<=/)[A-Z]+(?=/|$)", r"[\\w.:-]+", example), f"a name such as {example}", "NAME"
    )


project_id = matching(PROJECT, "the id of a project, such as my-project", "ID")
region_name = matching(REGION, f"a region, such as {DEFAULT_REGION}", "REGION")
account = matching(
    r"[a-z0-9][a-z0-9-]*@([a-z0-9.-]+\.)?gserviceaccount\.com",
    "the e-mail address of a service account, NAME@PROJECT.iam.gserviceaccount.com",
    "EMAIL",
)
_key = _resource("projects/P/locations/L/keyRings/R/cryptoKeys/K")
_network = matching(
    r"projects/\d+/global/networks/[a-z][a-z0-9-]{0,62}",
    "a name such as projects/123456/global/networks/default, with the number of the project",
    "NAME",
)
_board = _resource("projects/P/locations/L/tensorboards/ID")
_label = matching(
    f"(?!({MANAGED_BY[0]}|run)=)[a-z][a-z0-9_-]{{0,62}}=[a-z0-9_-]{{0,63}}",
    f"a label: KEY=VALUE of small letters, digits, _ and -, but not {MANAGED_BY[0]} or run, by "
    "which cleanup and registry go",
    "K=V",
)
# A value may not be empty, since the pipeline's launcher drops empty values, and then the variable
# would not be set.
_variable = matching(
    "(?s)(?!(TRAINER_[^=]*|CLUSTER_SPEC|TF_CONFIG|AIP_[^=]*|CLOUD_ML_[^=]*)=)"
    "[A-Za-z_][A-Za-z0-9_]*=.+",
    "a variable of the environment: NAME=VALUE, not empty, and none by which the cluster is "
    "described (TF_CONFIG, TRAINER_*, ...)",
    "N=V",
)
_job = functools.partial(flag, group="training job on Vertex AI")


@pydantic.dataclasses.dataclass(frozen=True, kw_only=True)
class JobSettings(Flags):
    """Settings of a training job that the cluster file does not have.

    Each field is a flag, and a key of `run.yaml`. The `argument` in its metadata names the argument
    of `CustomTrainingJobOp` that takes the value.
    """

    training_service_account: str | None = _job(
        account, "that the training job acts as (None: as the run does)", argument="service_account"
    )
    network: str | None = _job(
        _network, "VPC network that the job's machines are peered with", argument="network"
    )
    encryption_key: str | None = _job(
        _key,
        "Cloud KMS key (CMEK) for all that the run makes on Vertex AI",
        argument="encryption_spec_key_name",
    )
    labels: str | tuple[str, ...] | None = _job(
        _label, "more labels for everything that the run makes", several=True
    )
    env: str | tuple[str, ...] | None = _job(
        _variable, "of every replica's environment", several=True
    )
    tensorboard: str | None = _job(
        _board,
        "Vertex AI TensorBoard that follows the job; it costs by the month and user",
        argument="tensorboard",
    )

    def check(self, region: str) -> None:
        """Checks the settings against each other and against the region of the job.

        Raises:
          UserError: If `tensorboard` is set without `training_service_account`, the key or the
            TensorBoard lies in another region, or there are too many labels or variables.
        """
        for name, values, most in (
            ("labels", self.all_labels("run"), 64),
            ("env", [*self.environment, POOL_ROLES, POOL_GPUS], 100),
        ):
            if len(values) > most:
                raise UserError(
                    f"{name}: {len(values)} with those that are added, but Vertex AI takes at most "
                    f"{most}; leave some out"
                )
        if self.tensorboard and not self.training_service_account:
            raise UserError(
                "tensorboard needs training_service_account, which writes to it; give it too"
            )
        for name in ("encryption_key", "tensorboard"):
            place = re.search("/locations/([^/]+)/", getattr(self, name) or "")
            if place and place[1] != region:
                raise UserError(
                    f"{name} lies in {place[1]}, and the run in {region}; take one of there"
                )

    def all_labels(self, run: str = "") -> dict[str, str]:
        """Returns all labels by key: those of `labels`, `managed_by`, and `run` if it is given.

        Args:
          run: Name of the run or job; empty if it is not known.
        """
        return {**_pairs(self.labels), **dict([MANAGED_BY]), **({"run": run} if run else {})}

    def arguments(self, cluster: Cluster, run: str = "") -> dict[str, Any]:
        """Returns arguments of `CustomTrainingJobOp` by name.

        The display name, machines, environment, project, region and output directory are not among
        them. Neither are settings that are not set, and `timeout` (text such as `3600s`) without a
        time limit.

        Args:
          cluster: Decides scheduling strategy, time limit, and whether a lost replica restarts all.
          run: Name of the run or job for its label; empty if it is not known.
        """
        arguments: dict[str, Any] = {
            "strategy": cluster.scheduling.strategy,
            # Synchronous replicas cannot continue when one is lost, so all restart. Asynchronous
            # ones continue until the lost one is back.
            "restart_job_on_worker_restart": cluster.strategy != "parameter_server",
            "labels": self.all_labels(run),
            # The default of the argument is a placeholder that is not filled in everywhere.
            "persistent_resource_id": "",
        }
        if cluster.scheduling.timeout_s:
            arguments["timeout"] = f"{cluster.scheduling.timeout_s}s"
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value and "argument" in field.metadata:
                arguments[field.metadata["argument"]] = value
        return arguments

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables for every replica, by name; empty if there are none."""
        return _pairs(self.env)


def _pairs(texts: str | tuple[str, ...] | None) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in as_list(texts))
