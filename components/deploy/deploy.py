"""A model's endpoint on Vertex AI: which versions have machines there, and how requests are split among them.

deployment = Deployment(Options(registry="vertex://my-project/us-central1", name="taxi@7",
traffic=10)) deployment.deploy()        # version 7 gets a tenth of the requests
deployment.rollback()      # and none any more
deployment.undeploy()      # and no machine
"""

from collections.abc import Mapping
from typing import Any

from google.cloud import aiplatform

from common.errors import UserError
from common.google_cloud import MANAGED_BY, OURS, refusals
from common.pages import table
from components.deploy.options import Options
from components.register.answers import compare
from components.register.register import find_version
from components.register.registry import Version
from components.register.vertex import VertexRegistry

_NEW = "0"  # Id, in a split of the traffic, of what is being deployed.
_PATIENCE = 5  # Times as many requests are sent, at most, as a version's share needs to get one.


class Deployment:
    """The endpoint of a model, which is ours by its labels.

    Raises:
      UserError: Of all methods, if there is no such version or endpoint, or Vertex AI refuses
        something.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._name = options.name.partition("@")[0]
        self._registry = VertexRegistry(options.registry)
        self._place = {"project": self._registry.project, "location": self._registry.location}
        with refusals(options.registry):
            found = aiplatform.Endpoint.list(
                filter=f'{OURS} AND labels.name="{self._name}"', **self._place
            )
        self._endpoint = found[0] if found else None

    def __str__(self) -> str:
        if not self._endpoint:
            return f"model {self._name!r} has no endpoint"
        split = self._endpoint.traffic_split
        rows = [("version", "requests", "machine")]
        for each in self._endpoint.list_models():
            machine = each.dedicated_resources.machine_spec.machine_type
            rows.append((each.model_version_id, f"{split.get(each.id, 0)} %", machine))
        return f"{self._endpoint.resource_name}\n{table(rows)}"

    def deploy(self) -> None:
        """Deploys a version, or moves the traffic of one that is deployed, and asks it for what its evaluation has.

        If it does not answer as the evaluation has it, all is as before, and the error says what it
        answers.
        """
        options = self._options
        version = find_version(options.registry, options.name)
        with refusals(options.registry):
            self._endpoint = self._endpoint or aiplatform.Endpoint.create(
                display_name=self._name,
                labels=dict([MANAGED_BY]) | {"name": self._name},
                **self._place,
            )
            before = self._endpoint.traffic_split
            known = self._id_of(version)
            split = share(before, known or _NEW, options.traffic)
            if known:
                self._endpoint.update(traffic_split=split)
            else:
                model = aiplatform.Model(
                    f"{self._registry.resource_name(self._name)}@{version.number}", **self._place
                )
                self._endpoint.deploy(
                    model,
                    traffic_split=split,
                    machine_type=options.machine,
                    max_replica_count=options.max_replicas,
                    service_account=options.service_account,
                )
            try:
                self._check(version)
            except BaseException:  # Also what Vertex AI, or Ctrl-C, says meanwhile.
                if known:
                    self._endpoint.update(traffic_split=before)
                else:
                    self._endpoint.undeploy(self._id_of(version), traffic_split=before or None)
                raise

    def rollback(self) -> None:
        """Sends all requests to the version that was deployed before the newest one that gets any."""
        endpoint = self._found()
        split, deployed = (
            endpoint.traffic_split,
            sorted(endpoint.list_models(), key=lambda each: each.create_time),
        )
        newest = max((i for i, each in enumerate(deployed) if split.get(each.id)), default=0)
        if not newest:
            raise UserError(
                f"{endpoint.resource_name}: no version was deployed before the one that answers"
            )
        with refusals(self._options.registry):
            endpoint.update(traffic_split={deployed[newest - 1].id: 100})

    def undeploy(self) -> None:
        """Undeploys the versions that get no requests."""
        endpoint = self._found()
        with refusals(self._options.registry):
            split = endpoint.traffic_split
            for each in endpoint.list_models():
                if not split.get(each.id):
                    endpoint.undeploy(each.id)

    def delete(self) -> None:
        """Undeploys all versions, and deletes the endpoint."""
        with refusals(self._options.registry):
            self._found().delete(force=True)
        self._endpoint = None

    def _found(self) -> aiplatform.Endpoint:
        if not self._endpoint:
            raise UserError(str(self))
        return self._endpoint

    def _id_of(self, version: Version) -> str | None:
        deployed = self._endpoint.list_models()
        return next((each.id for each in deployed if each.model_version_id == version.number), None)

    def _check(self, version: Version) -> None:
        """Sends the made-up rows of an evaluation until the version itself has answered."""

        def ask(rows: list) -> Mapping[str, Any]:
            for _ in range(_PATIENCE * 100 // self._options.traffic):
                answer = self._endpoint.predict(rows)
                if answer.model_version_id == version.number:
                    return {"predictions": answer.predictions}
            raise UserError(
                f"{self._endpoint.resource_name}: version {version.number} has answered no request"
            )

        if answered := version.facts.get("answered"):
            compare(self._endpoint.resource_name, ask, {**answered, "latency_ms": None})


def share(split: Mapping[str, int], id: str, percent: int) -> dict[str, int]:
    """Returns a split of 100 percent in which `id` has a share, all of it if nothing else has any; the others keep their ratios."""
    others = {other: part for other, part in split.items() if other != id and part}
    left, total, shares = 100 - percent, sum(others.values()), {}
    for other, part in others.items():  # What rounding leaves goes to those that are still to come.
        shares[other] = round(left * part / total)
        left, total = left - shares[other], total - part
    return {**shares, id: 100 - sum(shares.values())}
