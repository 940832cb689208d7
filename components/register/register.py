"""Registers an evaluated model, and makes it the champion if its evaluation says so."""

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

# Keys of an evaluation that a version does not keep: the place of the model before it was copied,
# and figures for pages or of other versions.
_NOT_OF_A_VERSION = {"model_dir", "gate", "champion", "figures", "parts"}


def open_registry(place: str) -> Registry:
    """Returns the registry at a place: a local directory, or `vertex://PROJECT/LOCATION`.

    Nothing is read or created yet.

    Raises:
      UserError: If the place is neither.
    """
    if place.startswith("vertex://"):
        # Imported here, since Google's client takes 2 s to import.
        from components.register.vertex import VertexRegistry

        return VertexRegistry(place)
    return DirectoryRegistry(place)


def find_version(place: str, name: str) -> Version:
    """Returns a version of a registered model.

    Args:
      place: Place of the registry.
      name: `NAME@VERSION`, with the number or an alias of a version; or `NAME` for the champion.

    Raises:
      UserError: If there is no such registry, model or version, or if its files are gone or cannot
        be read.
      ConnectionError: If Vertex AI or a store does not answer.
    """
    name, _, number = name.partition("@")
    version = open_registry(place).find(name, number or CHAMPION)
    version.require_files(name)
    return version


def load_evaluation(path: str, model_dir: str) -> dict[str, Any]:
    """Returns the content of an `evaluation.json`.

    Args:
      path: Path of the file.
      model_dir: Directory of the model that it has to be of.

    Raises:
      UserError: If the file is missing or is no evaluation, if there is no such directory, or if
        the model there is not the one that was evaluated.
      ConnectionError: If a store does not answer.
    """
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
    """Adds a model to a registry as a new version, with what is known of how it was made.

    Args:
      model_dir: Directory of the SavedModel. If its parent is the directory of a job, facts of the
        job are kept as well.
      evaluation: Content of the model's `evaluation.json`.
      registry: Place of the registry.
      name: Name of the model in it.
      run: Run of the pipeline, if any. To register for it again adds nothing, and returns the
        version that it has.
      cluster: Cluster file as JSON, if it is known.
      image: Image that the run's steps ran in. It is kept only if it has a digest; Vertex AI serves
        the version in it.

    Returns:
      The number of the version.

    Raises:
      UserError: If the evaluation rejects the model, if there is no SavedModel, or if the registry
        cannot take it.
      ConnectionError: If Vertex AI or a store does not answer.
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
    """Makes a version the champion if its evaluation says so. The model is not judged again here.

    Nothing is promoted if another version has become the champion since the evaluation, because the
    candidate was not compared with that one.

    Args:
      evaluation: Content of the version's `evaluation.json`.
      registry: Place of the registry.
      name: Name of the model in it.
      version: Number of the version; None is an error, whatever the evaluation says.

    Returns:
      What happened, in words: also if the evaluation does not say so, or another version is the
      champion by now.

    Raises:
      UserError: If there is no such version, if its files are gone, if it does not answer as it
        did when it was judged, or if the registry cannot be read or written.
      ConnectionError: If Vertex AI or a store does not answer.
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
    if current == version:  # This step may have been killed after it had promoted the version.
        return f"version {version} is the champion already"
    return (
        f"not promoted: the champion was {compared or 'none'} when the model was evaluated, and "
        f"is {current or 'none'} now; evaluate again with --registry"
    )
