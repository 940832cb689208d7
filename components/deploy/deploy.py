"""A model's endpoint on Vertex AI: deployed versions, and their shares of the requests.

options = Options(registry="vertex://my-project/us-central1", name="taxi@7", traffic=10)
deployment = Deployment(options)
deployment.deploy()        # Version 7 gets a tenth of the requests,
deployment.rollback()      # gets none any more,
deployment.undeploy()      # and has no machines any more.
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

_NEW = "0"  # Stands for the version that is being deployed in a split of the traffic.
# A version's share says how many requests are needed, on average, until it answers one. At most
# this multiple of that number is sent to check it.
_PATIENCE = 5


class Deployment:
    """The endpoint of a model. Labels mark it as made by this program.

    Printed as a text, it lists the deployed versions.

    Raises:
      UserError: From all methods, if there is no such version or endpoint, or if Vertex AI refuses
        a request.
      ConnectionError: From all methods, if Vertex AI does not answer.
      GoogleAPICallError: From `rollback` and the conversion to a text, if the deployed versions
        cannot be listed.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._name = options.name.partition("@")[0]
        self._registry = VertexRegistry(options.registry)
        self._place: dict[str, Any] = {
            "project": self._registry.project,
            "location": self._registry.location,
        }
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
        """Gives a version its share of the requests, on new machines if it is not deployed yet.

        Makes the endpoint if the model has none. Afterwards the version is sent the requests of its
        evaluation, if that has recorded any. If it does not answer as recorded, or if that cannot
        be found out, the deployment and the traffic become as before, and the error is raised; a
        new endpoint stays.

        Raises:
          UserError: If there is no such version, Vertex AI refuses a request, or the version does
            not answer as recorded.
          ConnectionError: If Vertex AI does not answer.
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
            # A version that is found wrong is taken out again at once. Until then it may have
            # answered requests of others.
            try:
                self._check(version)
            except BaseException:  # Also if Vertex AI fails, or the user presses Ctrl-C.
                if known:
                    self._endpoint.update(traffic_split=before)
                else:
                    self._endpoint.undeploy(
                        self._id_of(version) or "", traffic_split=before or None
                    )
                raise

    def rollback(self) -> None:
        """Sends all requests to the version that was deployed before the one that answers.

        If several versions answer, the newest of them counts.

        Raises:
          UserError: If there is no earlier deployment, no version gets requests, or there is no
            endpoint.
        """
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
        """Undeploys the versions that get no requests, so that their machines cost nothing.

        Raises:
          UserError: If there is no endpoint, or Vertex AI refuses a request.
          ConnectionError: If Vertex AI does not answer.
        """
        endpoint = self._found()
        with refusals(self._options.registry):
            split = endpoint.traffic_split
            for each in endpoint.list_models():
                if not split.get(each.id):
                    endpoint.undeploy(each.id)

    def delete(self) -> None:
        """Undeploys all versions, and deletes the endpoint.

        Raises:
          UserError: If there is no endpoint, or Vertex AI refuses a request.
          ConnectionError: If Vertex AI does not answer.
        """
        with refusals(self._options.registry):
            self._found().delete(force=True)
        self._endpoint = None

    def _found(self) -> aiplatform.Endpoint:
        # Here a missing endpoint is an error; `deploy` makes one instead.
        if not self._endpoint:
            raise UserError(str(self))
        return self._endpoint

    def _id_of(self, version: Version) -> str | None:
        deployed = self._found().list_models()
        return next((each.id for each in deployed if each.model_version_id == version.number), None)

    def _check(self, version: Version) -> None:
        """Checks that a version answers as its evaluation recorded.

        The endpoint chooses which version answers, so requests are repeated until it is this one. A
        version whose evaluation has no recorded requests is not checked.

        Raises:
          UserError: If the version answers otherwise, refuses the requests, or is not the one that
            answers in any of many attempts.
        """

        endpoint = self._found()

        def ask(rows: list[Any]) -> Mapping[str, Any]:
            for _ in range(_PATIENCE * 100 // self._options.traffic):
                answer = endpoint.predict(rows)
                if answer.model_version_id == version.number:
                    return {"predictions": answer.predictions}
            raise UserError(
                f"{endpoint.resource_name}: version {version.number} has answered no request"
            )

        if answered := version.facts.get("answered"):
            compare(endpoint.resource_name, ask, {**answered, "latency_ms": None})


def share(split: Mapping[str, int], id: str, percent: int) -> dict[str, int]:
    """Returns a split of the traffic in which one version has a given share.

    Args:
      split: Percentages of the requests by id of the deployed version.
      id: Id of the version. It gets everything if no other version gets requests.
      percent: Its share.

    Returns:
      The new split, which sums up to 100. The other versions keep their ratios, but for rounding.
    """
    others = {other: part for other, part in split.items() if other != id and part}
    left, total, shares = 100 - percent, sum(others.values()), {}
    # Each version gets its part of what is left, so rounding errors do not add up.
    for other, part in others.items():
        shares[other] = round(left * part / total)
        left, total = left - shares[other], total - part
    return {**shares, id: 100 - sum(shares.values())}
