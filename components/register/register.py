"""Registers an evaluated model, and makes it the champion when it is better."""

import json
import os
from collections.abc import Mapping
from typing import Any

from etils import epath

from common.errors import UserError, reading
from common.storage.files import tree_digest
from common.version import code_version
from components.register.directory import DirectoryRegistry
from components.register.registry import CHAMPION, Registry, Version
from trainer.job import done, identity

# What an evaluation says beside the version itself: where the model was, and figures of pages and
# of other versions.
_NOT_OF_A_VERSION = {"model_dir", "gate", "champion", "figures", "parts"}


def open_registry(place: str) -> Registry:
    """Returns the registry at a place: a directory, or `vertex://PROJECT/LOCATION`."""
    if place.startswith("vertex://"):
        from components.register.vertex import VertexRegistry  # imports Google's client, 2 s

        return VertexRegistry(place)
    return DirectoryRegistry(place)


def find_version(place: str, name: str) -> Version:
    """Returns the version in the registry at a place that `NAME[@VERSION]` means, by its number or an alias; without one the champion.

    Raises:
      UserError: If there is none of that name, or its files are gone.
    """
    name, _, number = name.partition("@")
    version = open_registry(place).find(name, number or CHAMPION)
    if not version.has_files:
        raise UserError(f"the files of version {version.number} of model {name!r} are gone")
    return version


def load_evaluation(path: str, model_dir: str) -> dict[str, Any]:
    """Reads `evaluation.json`; it is refused if it is missing, no evaluation, or of another model than that in `model_dir`."""
    with reading(path, "make it with components.evaluate"):
        evaluation = json.loads(epath.Path(path).read_text())
        digest, *_ = (
            evaluation[key] for key in ("model_digest", "metrics", "champion", "decision")
        )
    if not epath.Path(model_dir).is_dir():
        raise UserError(f"{model_dir}: no such directory")
    if tree_digest(model_dir) != digest:
        raise UserError(
            f"{path} is of another model than the one in {model_dir}; evaluate that one"
        )
    return evaluation


def register(
    *,
    model_dir: str,
    evaluation: Mapping[str, Any],
    registry: str,
    name: str,
    run: str = "",
    cluster: str = "",
    image: str = "",
) -> str:
    """Adds a new version of a model to a registry, with all that is known of how it was made.

    Args:
      model_dir: The model; the directory above it is the job's, if it is one of ours.
      evaluation: Evaluation of it, which does not reject it.
      registry: Place of the registry.
      name: Name of the model in it.
      run: Run of the pipeline, if any; registering for it again gives the same version.
      cluster: The cluster file as JSON.
      image: Image that the run's steps ran in, kept if it has a digest; it serves the version on
        Vertex AI.

    Returns:
      The version.
    """
    decision = evaluation["decision"]
    if decision["verdict"] == "reject":
        raise UserError(f"the evaluation rejects {model_dir}: {'; '.join(decision['reasons'])}")
    job_dir = os.fspath(epath.Path(model_dir).parent)
    facts = {"name": name, "run": run, "code_version": code_version(), **identity.facts(job_dir)}
    if "@" in image:
        facts["image"] = image
    if cluster:
        facts["cluster"] = json.loads(cluster)
    if record := done.load(job_dir):
        facts["steps"], facts["epochs"] = record.exported
    facts |= {key: value for key, value in evaluation.items() if key not in _NOT_OF_A_VERSION}
    return open_registry(registry).register(name, model_dir, facts)


def promote(*, evaluation: Mapping[str, Any], registry: str, name: str, version: str | None) -> str:
    """Makes `version` the champion if its evaluation says so. Returns what happened, in words.

    Nothing is judged here, but the version must still answer as it did when it was judged; a
    UserError if not. An evaluation speaks of the champion that it compared with: where another one
    is the champion by now, it says nothing.
    """
    if version is None:
        raise UserError(f"this run has registered no version of model {name!r} in {registry}")
    decision = evaluation["decision"]
    reasons = "; ".join(decision["reasons"])
    if decision["verdict"] != "promote":
        return f"not promoted: {reasons}"
    models = open_registry(registry)
    compared = (evaluation["champion"] or {}).get("version")
    if models.promote(name, version, reasons, instead_of=compared):
        return f"version {version} is the champion now" + (
            f", version {compared} the previous one" if compared else ""
        )
    current = models.aliases(name).get(CHAMPION)
    if current == version:  # this step may have been killed after its decision was kept
        return f"version {version} is the champion already"
    return (
        f"not promoted: the champion was {compared or 'none'} when the model was evaluated, and "
        f"is {current or 'none'} "
        "now; evaluate again with --registry"
    )
