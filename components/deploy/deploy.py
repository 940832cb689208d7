"""A model's endpoint on Vertex AI: deployed versions, and their shares of the requests.

options = Options(registry="vertex://my-project/us-central1", name="taxi@7", traffic=10)
endpoint = deploy(options, find_endpoint(options))     # Version 7 gets a tenth of the requests,
rollback(endpoint)                                     # gets none any more,
undeploy(endpoint)                                     # and has no machines any more.

The functions raise the errors of Google's client; `common.google_cloud.refusals` explains them.
"""

from collections.abc import Mapping
from typing import Any

from google.cloud import aiplatform

from common.errors import UserError
from common.google_cloud import MANAGED_BY, OURS
from common.pages import table
from components.deploy.options import Options
from components.register.answers import compare
from components.register.register import find_version
from components.register.registry import Version
from components.register.serving import MODEL_ID_PREFIX
from components.register.vertex import VertexRegistry

# A version's share says how many requests are needed, on average, until it answers one. At most
# this number over the share in percent is sent to check it, which is five times as many.
_REQUESTS = 500


def find_endpoint(options: Options) -> aiplatform.Endpoint | None:
    """Returns the endpoint of a model, which labels mark as made by this program; None without one.

    The registry's project and location become the ones that Google's client uses.

    Raises:
      UserError: If the registry is not one on Vertex AI.
      GoogleAPICallError: If Vertex AI refuses or fails.
    """
    registry = VertexRegistry(options.registry)
    aiplatform.init(project=registry.project, location=registry.location)
    endpoints = aiplatform.Endpoint.list(filter=f'{OURS} AND labels.name="{options.model}"')
    return next(iter(endpoints), None)


def deploy(options: Options, endpoint: aiplatform.Endpoint | None) -> aiplatform.Endpoint:
    """Gives a version its share of the requests, on new machines if it is not deployed yet.

    Afterwards the version is sent the requests of its evaluation, if that has recorded any. If it
    does not answer as recorded, or if that cannot be found out, the deployment and the traffic
    become as before, and the error is raised; a new endpoint stays.

    Args:
      options: The version and its share; for a version that is not deployed yet also its machines
        and service account.
      endpoint: Endpoint of the model; None to make one.

    Returns:
      The endpoint.

    Raises:
      UserError: If there is no such version, its files are gone, or it does not answer as recorded.
      ConnectionError: If a store or the registry does not answer.
      GoogleAPICallError: If Vertex AI refuses or fails otherwise.
    """
    version = find_version(options.registry, options.name)
    endpoint = endpoint or aiplatform.Endpoint.create(
        display_name=options.model, labels=dict([MANAGED_BY], name=options.model)
    )
    before = endpoint.traffic_split
    deployed_id = _deployed(endpoint).get(version.number)
    # Vertex AI calls a version that is being deployed "0".
    split = share(before, deployed_id or "0", options.traffic)
    if deployed_id:
        endpoint.update(traffic_split=split)
    else:
        endpoint.deploy(
            aiplatform.Model(f"{MODEL_ID_PREFIX}{options.model}@{version.number}"),
            traffic_split=split,
            machine_type=options.machine,
            max_replica_count=options.max_replicas,
            service_account=options.service_account,
        )
    # A version that is found wrong is taken out again at once. Until then it may have answered
    # requests of others.
    try:
        _check(endpoint, version, options.traffic)
    except BaseException:  # Also if Vertex AI fails, or the user presses Ctrl-C.
        if deployed_id:
            endpoint.update(traffic_split=before)
        else:
            endpoint.undeploy(_deployed(endpoint)[version.number], traffic_split=before or None)
        raise
    return endpoint


def rollback(endpoint: aiplatform.Endpoint) -> None:
    """Sends all requests to the version that was deployed before the one that answers.

    If several get requests, the one that was deployed last counts.

    Raises:
      UserError: If there is no earlier deployment, or no version gets requests.
      GoogleAPICallError: If Vertex AI refuses or fails.
    """
    split = endpoint.traffic_split
    deployed = sorted(endpoint.list_models(), key=lambda each: each.create_time)
    newest = max((i for i, each in enumerate(deployed) if split.get(each.id)), default=0)
    if not newest:
        raise UserError(
            f"{endpoint.resource_name}: no version was deployed before the one that answers"
        )
    endpoint.update(traffic_split={deployed[newest - 1].id: 100})


def undeploy(endpoint: aiplatform.Endpoint) -> None:
    """Undeploys the versions that get no requests, so that their machines cost nothing.

    Raises:
      GoogleAPICallError: If Vertex AI refuses or fails.
    """
    split = endpoint.traffic_split
    for id in _deployed(endpoint).values():
        if not split.get(id):
            endpoint.undeploy(id)


def listed(endpoint: aiplatform.Endpoint) -> str:
    """Returns the endpoint's full name, and a table of versions, shares of requests, and machines.

    Only versions that are deployed are in it. It is a text of several lines.

    Raises:
      GoogleAPICallError: If Vertex AI refuses or fails.
    """
    split, rows = endpoint.traffic_split, [("version", "requests", "machine")]
    for each in endpoint.list_models():
        machine = each.dedicated_resources.machine_spec.machine_type
        rows.append((each.model_version_id, f"{split.get(each.id, 0)} %", machine))
    return f"{endpoint.resource_name}\n{table(rows)}"


def _deployed(endpoint: aiplatform.Endpoint) -> dict[str, str]:
    """Returns the ids of the deployed versions by number."""
    return {each.model_version_id: each.id for each in endpoint.list_models()}


def _check(endpoint: aiplatform.Endpoint, version: Version, traffic: int) -> None:
    """Checks that a version answers as its evaluation recorded.

    The endpoint chooses which version answers, so requests are repeated until it is this one. A
    version whose evaluation has no recorded requests is not checked.

    Raises:
      UserError: If the version answers otherwise, refuses the requests, or is not the one that
        answers in any of many attempts.
      GoogleAPICallError: If Vertex AI refuses or fails.
    """

    def ask(rows: list[Any]) -> Mapping[str, Any]:
        for _ in range(_REQUESTS // traffic):
            answer = endpoint.predict(rows)
            if answer.model_version_id == version.number:
                return {"predictions": answer.predictions}
        raise UserError(
            f"{endpoint.resource_name}: version {version.number} has answered no request"
        )

    if answered := version.facts.get("answered"):
        compare(endpoint.resource_name, ask, answered)


def share(split: Mapping[str, int], id: str, percent: int) -> dict[str, int]:
    """Returns a split of the traffic in which one version has a given share.

    Args:
      split: Percentages of the requests by id of the deployed version.
      id: Id of the version. It gets everything if no other version gets requests.
      percent: Its share.

    Returns:
      The new split, which sums up to 100. The other versions keep their ratios, but for rounding;
      those that got no requests are left out.
    """
    others = {other: part for other, part in split.items() if other != id and part}
    left, total, shares = 100 - percent, sum(others.values()), {}
    # Each version gets its part of what is left, so rounding errors do not add up.
    for other, part in others.items():
        shares[other] = round(left * part / total)
        left, total = left - shares[other], total - part
    return {**shares, id: 100 - sum(shares.values())}
