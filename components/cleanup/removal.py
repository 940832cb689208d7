"""Removes what is left over of a project, one after the other, and notes it in the bucket."""

import contextlib
import dataclasses
import json
import secrets
from collections.abc import Iterable, Iterator

from google.api_core.exceptions import NotFound
from google.cloud import aiplatform
from google.cloud import aiplatform_v1 as v1
from google.cloud.aiplatform.utils import MetadataClientWithOverride

from common.errors import UserError
from common.google_cloud import refusals
from common.storage.files import delete_files, write_text
from components.cleanup.project_state import Leftover, ProjectState
from components.register.register import open_registry

JOURNAL = "runs/cleanup"


def remove(state: ProjectState, leftovers: Iterable[Leftover]) -> Iterator[tuple[Leftover, str]]:
    """Removes leftovers, and yields each with its error, or an empty one; an error of one does not save the others.

    `gs://BUCKET/runs/cleanup/<time>.jsonl` has a line for each before anything goes. At the end it has what came of it:
    its `error`, which stays null of what was not tried.
    """
    leftovers = list(leftovers)
    lines = [{**dataclasses.asdict(each), "error": None} for each in leftovers]
    journal = f"{state.bucket}/{JOURNAL}/{state.now:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}.jsonl"
    _write(journal, lines)
    try:
        for each, line in zip(leftovers, lines, strict=True):
            try:
                with refusals(state.registry):
                    _remove(state, each)
                line["error"] = ""
            except (UserError, ConnectionError) as error:
                line["error"] = str(error)
            yield each, line["error"]
    finally:
        _write(journal, lines)


def _remove(state: ProjectState, leftover: Leftover) -> None:
    match leftover.kind:
        case "job":
            aiplatform.CustomJob.get(leftover.name).cancel()
        case "version":
            open_registry(state.registry).delete(*leftover.name.split(" "), f"cleanup: {leftover.why}")
        case "dataset" | "files":
            if leftover.kind == "dataset":
                _forget(leftover.name.rstrip("/"))
            *files, record = (f"{state.bucket}/{name}" for name in leftover.files)
            delete_files(files)
            delete_files([record])  # last: without it nobody would know the others


def _forget(dataset: str) -> None:
    """Has the pipelines' cache forget who made a dataset: it goes by the executions in ML Metadata, whose files it takes as there."""
    config = aiplatform.initializer.global_config
    client = config.create_client(client_class=MetadataClientWithOverride)
    store = f"projects/{config.project}/locations/{config.location}/metadataStores/default"
    with contextlib.suppress(NotFound):  # of a project in which no pipeline has ever ended a step
        for artifact in client.list_artifacts(request={"parent": store, "filter": f'uri="{dataset}"'}):
            graph = client.query_artifact_lineage_subgraph(request={"artifact": artifact.name, "max_hops": 1})
            for event in graph.events:
                if event.artifact == artifact.name and event.type_ == v1.Event.Type.OUTPUT:
                    client.delete_execution(name=event.execution).result()


def _write(journal: str, lines: Iterable[dict]) -> None:
    write_text(journal, "".join(json.dumps(line) + "\n" for line in lines))
