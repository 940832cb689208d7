"""What a training job on Vertex AI is given beside its machines, for the pipeline and for a job by itself.

    settings = JobSettings(network="projects/123456/global/networks/default", env=("LEVEL=2",))
    settings.parameters(cluster, run="training-1")   # what `CustomTrainingJobOp` takes: network, labels, strategy, ...

The rules are those of Vertex AI's reference of `CustomJobSpec`, and of its guides to custom training.
"""

import dataclasses
import datetime
import functools
import re
import secrets
from typing import Any

from common.cli import Flags, flag
from common.errors import UserError
from common.flags import Kind
from common.google_cloud import MANAGED_BY
from components.train.cluster.cluster_file import Cluster
from components.train.cluster.validation import seconds

DEFAULT_REGION = "us-central1"
_OUR_LABELS = {MANAGED_BY[0], "run"}  # the latter has the name of one
_OUR_ENV = re.compile("TRAINER_.*|CLUSTER_SPEC|TF_CONFIG|AIP_.*|CLOUD_ML_.*")


def new_name() -> str:
    """A name for a run, or for a job by itself; two may be submitted in one second."""
    return f"training-{datetime.datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def matching(form: str, says: str, metavar: str) -> Kind:
    """The type of a text of a form; `says` tells people what that is, with an example."""
    return Kind(str, lambda text: bool(re.fullmatch(form, text)), says, metavar)


def _resource(example: str) -> Kind:
    """The type of the name of a resource, such as the example, in which words of capital letters stand for what varies."""
    return matching(re.sub("(?<=/)[A-Z]+(?=/|$)", "[^/]+", example), f"a name such as {example}", "NAME")


account = matching(
    r"[a-z0-9-]+@[a-z0-9.-]+\.com",
    "the e-mail address of a service account, NAME@PROJECT.iam.gserviceaccount.com",
    "EMAIL",
)
encryption_key = _resource("projects/P/locations/L/keyRings/R/cryptoKeys/K")
network = _resource("projects/NUMBER/global/networks/N")
attachment = _resource("projects/P/regions/R/networkAttachments/N")
label = matching(
    "[a-z][a-z0-9_-]{0,62}=[a-z0-9_-]{0,63}", "a label: KEY=VALUE of small letters, digits, _ and -", "K=V"
)
# The pipeline's launcher leaves out an empty value, so that the variable would not be there.
_variable = matching("(?s)[A-Za-z_][A-Za-z0-9_]*=.+", "a variable of the environment: NAME=VALUE, and not empty", "N=V")
_machines = matching("[a-z][a-z0-9-]{0,62}", "the id of a persistent resource", "ID")
_reservation = _resource("projects/P/zones/Z/reservations/R")
_board = _resource("projects/P/locations/L/tensorboards/ID")
_duration = matching("[1-9][0-9]{0,8}[smhd]", "a number with s, m, h or d, such as 6h", "TIME")
_job = functools.partial(flag, group="training job on Vertex AI")


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobSettings(Flags):
    """The settings; those of machines, strategy, time limit and restarts are the cluster file's."""

    training_service_account: str | None = _job(account, "that the training job acts as (None: as the run does)")
    network: str | None = _job(network, "VPC network that the job's machines are peered with")
    reserved_ip_ranges: tuple[str, ...] | None = _job(
        matching("[a-z][a-z0-9-]*", "the name of an address range", "RANGE"), "of --network for them", several=True
    )
    network_attachment: str | None = _job(attachment, "Private Service Connect interface, in place of --network")
    encryption_key: str | None = _job(encryption_key, "Cloud KMS key (CMEK) for all that the run makes on Vertex AI")
    labels: tuple[str, ...] | None = _job(label, "more labels for everything that the run makes", several=True)
    env: tuple[str, ...] | None = _job(_variable, "of every replica's environment", several=True)
    tensorboard: str | None = _job(_board, "Vertex AI TensorBoard that follows the job; it costs by the month and user")
    persistent_resource: str | None = _job(_machines, "machines that are there already, in place of new ones")
    reservation: str | None = _job(_reservation, "Compute Engine reservation that the machines come from")
    max_wait: str | None = _job(_duration, "for machines of a FLEX_START cluster (None: 1d)")
    web_access: bool = _job(bool, "an interactive shell in the job's containers")
    restart: str | None = _job(
        ("all", "one"), "who starts again when a machine is lost (None: all, with parameter servers only the lost one)"
    )

    def check(self, cluster: Cluster, region: str) -> None:
        """Refuses settings that do not go together, or not with the cluster, or that lie in another region."""
        strategy = cluster.scheduling.strategy
        for refused, why in (
            (self.network and self.network_attachment, "--network and --network-attachment exclude each other; leave one out"),
            (self.reserved_ip_ranges and not self.network, "--reserved-ip-ranges are those of a --network; give it too"),
            (self.max_wait and strategy != "FLEX_START", f"--max-wait is for FLEX_START; the cluster file says {strategy}"),
            (self.reservation and strategy != "STANDARD", f"--reservation needs STANDARD machines; not {strategy}"),
            (self.persistent_resource and strategy != "STANDARD", f"--persistent-resource has machines; {strategy} asks for others"),
            (self.reservation and self.persistent_resource, "--reservation and --persistent-resource exclude each other"),
            (self.tensorboard and not self.training_service_account, "--tensorboard needs --training-service-account, which writes to it"),
        ):  # fmt: skip
            if refused:
                raise UserError(why)
        for name in ("network_attachment", "encryption_key", "tensorboard", "reservation"):
            place = re.search("/(?:regions|locations|zones)/([a-z0-9-]+)/", getattr(self, name) or "")
            if place and not f"{place[1]}-".startswith(f"{region}-"):
                raise UserError(
                    f"--{name.replace('_', '-')} lies in {place[1]}, and the run in {region}; take one of there"
                )
        for name in _pairs(self.labels):
            if name in _OUR_LABELS:
                raise UserError(f"--labels {name}: cleanup and registry go by it; choose another name")
        for name in _pairs(self.env):
            if _OUR_ENV.fullmatch(name):
                raise UserError(f"--env {name}: the cluster is described by it; choose another name")

    def all_labels(self, run: str = "") -> dict[str, str]:
        """The labels, ours among them; that of the run if its name is known."""
        return {**_pairs(self.labels), **dict([MANAGED_BY]), **({"run": run} if run else {})}

    def parameters(self, cluster: Cluster, run: str = "") -> dict[str, Any]:
        """Parameters of `CustomTrainingJobOp` by name, all but those of machines and place."""
        scheduling, job_time = cluster.scheduling, {}
        if scheduling.timeout_s:
            job_time["timeout"] = f"{scheduling.timeout_s}s"
        if self.max_wait:
            job_time["max_wait_duration"] = f"{seconds(self.max_wait)}s"
        # Synchronous replicas cannot go on without one of them; asynchronous ones can, and the lost one comes back.
        restart = self.restart or ("one" if cluster.strategy == "parameter_server" else "all")
        attached = {"network_attachment": self.network_attachment} if self.network_attachment else {}
        return {
            "strategy": scheduling.strategy,
            "restart_job_on_worker_restart": restart == "all",
            **job_time,
            "service_account": self.training_service_account or "",
            "network": self.network or "",
            "reserved_ip_ranges": _listed(self.reserved_ip_ranges),
            "psc_interface_config": attached,
            "encryption_spec_key_name": self.encryption_key or "",
            "tensorboard": self.tensorboard or "",
            "persistent_resource_id": self.persistent_resource or "",
            "enable_web_access": self.web_access,
            "labels": self.all_labels(run),
        }

    @property
    def environment(self) -> dict[str, str]:
        """Variables for every replica."""
        return _pairs(self.env)

    @property
    def reserved(self) -> dict[str, Any]:
        """What every machine's specification says of the reservation."""
        if not self.reservation:
            return {}
        return {
            "reservation_affinity": {
                "reservation_affinity_type": "SPECIFIC_RESERVATION",
                "key": "compute.googleapis.com/reservation-name",
                "values": [self.reservation],
            }
        }


def _listed(given: str | tuple[str, ...] | None) -> list[str]:
    """The values of a flag that takes several; one alone is no tuple."""
    return [given] if isinstance(given, str) else list(given or ())


def _pairs(given: str | tuple[str, ...] | None) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in _listed(given))
