"""What a training job on Vertex AI is given beside its machines, for the pipeline and for a job by itself.

    settings = JobSettings(network="projects/123456/global/networks/default", env=("LEVEL=2",))
    settings.arguments(cluster, run="training-1")   # of `CustomTrainingJobOp`: network, labels, strategy, ...

The rules are those of Vertex AI's reference of `CustomJobSpec`, and of its guides to custom training.
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


@pydantic.dataclasses.dataclass(frozen=True, kw_only=True)
class JobSettings(Flags):
    """Settings of a training job; those of machines, strategy, time limit and restarts are the cluster file's.

    A field is a flag, and a key of `run.yaml`. Its `argument` names what `CustomTrainingJobOp` takes it by, a key of a
    dictionary behind a dot; `convert` turns the value into that argument.
    """

    training_service_account: str | None = _job(
        account, "that the training job acts as (None: as the run does)", argument="service_account"
    )
    network: str | None = _job(network, "VPC network that the job's machines are peered with", argument="network")
    reserved_ip_ranges: str | tuple[str, ...] | None = _job(
        matching("[a-z][a-z0-9-]*", "the name of an address range", "RANGE"),
        "of --network for them",
        several=True,
        argument="reserved_ip_ranges",
        convert=as_list,
    )
    network_attachment: str | None = _job(
        attachment,
        "Private Service Connect interface, in place of --network",
        argument="psc_interface_config.network_attachment",
    )
    encryption_key: str | None = _job(
        encryption_key,
        "Cloud KMS key (CMEK) for all that the run makes on Vertex AI",
        argument="encryption_spec_key_name",
    )
    labels: str | tuple[str, ...] | None = _job(label, "more labels for everything that the run makes", several=True)
    env: str | tuple[str, ...] | None = _job(_variable, "of every replica's environment", several=True)
    tensorboard: str | None = _job(
        _board, "Vertex AI TensorBoard that follows the job; it costs by the month and user", argument="tensorboard"
    )
    persistent_resource: str | None = _job(
        _machines, "machines that are there already, in place of new ones", argument="persistent_resource_id"
    )
    reservation: str | None = _job(_reservation, "Compute Engine reservation that the machines come from")
    max_wait: str | None = _job(
        _duration,
        "for machines of a FLEX_START cluster (None: 1d)",
        argument="max_wait_duration",
        convert=lambda text: f"{seconds(text)}s",
    )
    web_access: bool = _job(bool, "an interactive shell in the job's containers", argument="enable_web_access")
    restart: str | None = _job(
        ("all", "one"), "who starts again when a machine is lost (None: all, with parameter servers only the lost one)"
    )

    def check(self, cluster: Cluster, region: str) -> None:
        """Refuses settings that do not go together, or not with the cluster, or that lie in another region."""
        strategy = cluster.scheduling.strategy
        for refused, why in (
            (self.network and self.network_attachment, "network and network_attachment exclude each other; leave one out"),
            (self.reserved_ip_ranges and not self.network, "reserved_ip_ranges are those of a network; give it too"),
            (self.max_wait and strategy != "FLEX_START", f"max_wait is for FLEX_START; the cluster file says {strategy}"),
            (self.reservation and strategy != "STANDARD", f"reservation needs STANDARD machines; not {strategy}"),
            (self.persistent_resource and strategy != "STANDARD", f"persistent_resource has machines; {strategy} asks for others"),
            (self.reservation and self.persistent_resource, "reservation and persistent_resource exclude each other"),
            (self.tensorboard and not self.training_service_account, "tensorboard needs training_service_account, which writes to it"),
        ):  # fmt: skip
            if refused:
                raise UserError(why)
        for name in ("network_attachment", "encryption_key", "tensorboard", "reservation"):
            place = re.search("/(?:regions|locations|zones)/([a-z0-9-]+)/", getattr(self, name) or "")
            if place and not f"{place[1]}-".startswith(f"{region}-"):
                raise UserError(f"{name} lies in {place[1]}, and the run in {region}; take one of there")
        for name in _pairs(self.labels):
            if name in _OUR_LABELS:
                raise UserError(f"labels {name}: cleanup and registry go by it; choose another name")
        for name in _pairs(self.env):
            if _OUR_ENV.fullmatch(name):
                raise UserError(f"env {name}: the cluster is described by it; choose another name")

    def all_labels(self, run: str = "") -> dict[str, str]:
        """The labels, ours among them; that of the run if its name is known."""
        return {**_pairs(self.labels), **dict([MANAGED_BY]), **({"run": run} if run else {})}

    def arguments(self, cluster: Cluster, run: str = "") -> dict[str, Any]:
        """Returns the arguments of `CustomTrainingJobOp` by name, all but those of machines and place."""
        arguments: dict[str, Any] = {
            "strategy": cluster.scheduling.strategy,
            # Synchronous replicas cannot go on without one of them; asynchronous ones can, and the lost one comes back.
            "restart_job_on_worker_restart": (
                self.restart == "all" if self.restart else cluster.strategy != "parameter_server"
            ),
            "labels": self.all_labels(run),
            "persistent_resource_id": "",  # its default is a placeholder that few surroundings fill in
        }
        if cluster.scheduling.timeout_s:
            arguments["timeout"] = f"{cluster.scheduling.timeout_s}s"
        for field in dataclasses.fields(self):
            value, name = getattr(self, field.name), field.metadata.get("argument")
            if value and name:
                value = field.metadata.get("convert", lambda same: same)(value)
                name, _, key = name.partition(".")
                arguments[name] = {**arguments.get(name, {}), key: value} if key else value
        return arguments

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


def _pairs(given: str | tuple[str, ...] | None) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in as_list(given))
