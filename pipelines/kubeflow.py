"""Runs the pipeline on a server of Kubeflow Pipelines.

The code of the pipeline's steps and their files are the same as on this machine. The files lie on a
volume that every step mounts, with the registry, or in a bucket, with Vertex AI's Model Registry.
"""

import dataclasses
import json
import time
import warnings

import kfp
import kfp_server_api
import urllib3

from common import documents
from common.cli import Flags, as_list, flag, split_words
from common.container_engine import DEFAULT_IMAGE
from common.errors import UserError
from components.train.backends.job_settings import JobSettings, matching, new_name
from pipelines import cloud_options
from pipelines.arguments import DEFAULT_CLUSTER, pipeline_arguments
from pipelines.config import Config, Keys
from pipelines.training import build, launcher_of

POLL_S = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class KubeflowOptions(Flags):
    """Keys of a run on a server of Kubeflow Pipelines other than Vertex AI."""

    kfp_host: str | None = flag(str, "URL of a server, in place of Vertex AI", metavar="URL")
    kfp_client: str | tuple[str, ...] | None = flag(
        matching(r"\w+=.*", "KEY=VALUE, such as namespace=team", "KEY=VALUE"),
        "further arguments of kfp.Client, VALUE in YAML",
        several=True,
    )
    claim: str = flag(
        matching("[a-z0-9.-]+:/[^:]+", "NAME:PATH, such as data:/data", "NAME:PATH"),
        "persistent volume claim (ReadWriteMany) that all steps mount at PATH; else --bucket",
        default="",
    )
    train_args: str = flag(
        str,
        "flags of components.train for its back end, one text: '--namespace team', or '--backend "
        "process' to train within the step",
        default="",
        metavar="FLAGS",
    )


KEYS = Keys(
    options={**cloud_options.KEYS.options, KubeflowOptions: ()},
    flags=(*cloud_options.KEYS.flags, "kfp_host", "claim"),
)


def unusable(config: Config) -> list[str]:
    """Returns the sorted names of keys that are given and mean something to Vertex AI only.

    With `claim`, these include `project`, `location` and `bucket`, which a run without it uses.
    """
    names = {
        "fail_on_reject",
        *cloud_options.CloudOptions.__dataclass_fields__,
        *JobSettings.__dataclass_fields__,
    }
    names -= {"scheduling", "timeout", "max_restarts"}  # They are of the training as well.
    if not config.claim:
        names -= cloud_options.NEEDED.keys()
    return sorted(config.model_fields_set & names)


def submit(config: Config, *, wait: bool, dry_run: bool) -> int:
    """Starts a run, and prints its URL. With `dry_run` it only prints its arguments, as JSON.

    Args:
      config: Keys of the run; `kfp_host` is given.
      wait: Whether to wait for the end of the run.
      dry_run: Whether to send nothing.

    Returns:
      The exit code, 1 if the run has not succeeded, which shows only with `wait`, else 0.

    Raises:
      UserError: If a key is wrong, `claim` and `bucket` are both missing, or the server refuses the
        run.
      ConnectionError: If the server does not answer.
    """
    if config.claim:
        shared = config.claim.partition(":")[2]
        registry = f"{shared}/registry"
    elif config.bucket:
        cloud_options.check_place(config)
        shared, registry = config.bucket, f"vertex://{config.project}/{config.location}"
    else:
        raise UserError(
            "--claim is missing; give NAME:PATH of one that all steps can mount (ReadWriteMany), "
            "or --bucket gs://BUCKET"
        )
    name = new_name()
    image = config.image or DEFAULT_IMAGE
    launcher = [] if "--backend" in config.train_args else launcher_of(image, config.claim)
    cluster = cloud_options.cluster_of(config, DEFAULT_CLUSTER)
    values = {
        **pipeline_arguments(config, cluster, as_list(config.source)),
        "run_id": name,
        "job_dir": config.job_dir or f"{shared}/runs/{name}/job",
        "dataset_dir": f"{shared}/datasets",
        "registry": registry,
        "train_args": [*launcher, *split_words("train_args", config.train_args)],
    }
    if dry_run:
        print(json.dumps(values, indent=2))
        return 0
    pairs = (option.partition("=") for option in as_list(config.kfp_client))
    options = {key: documents.parse_yaml(value.encode()) for key, _, value in pairs}
    warnings.simplefilter("ignore", FutureWarning)  # kfp warns of servers of its first version.
    try:
        try:
            client = kfp.Client(config.kfp_host, **options)
        except TypeError as error:
            raise UserError(f"kfp_client: {error}") from error
        pipeline = build("kubeflow", image, claim=config.claim)
        # This prints the URL.
        run = client.create_run_from_pipeline_func(pipeline, values, run_name=name)
        if not wait:
            return 0
        state = _follow(client, run.run_id)
    except kfp_server_api.ApiException as error:
        raise UserError(f"--kfp-host {config.kfp_host}: {error}") from error
    except (urllib3.exceptions.HTTPError, TimeoutError) as error:
        raise ConnectionError(f"--kfp-host {config.kfp_host}: {error}") from error
    print(f"{name}: {state.lower()}")
    return int(state != "SUCCEEDED")


def _follow(client: kfp.Client, run_id: str) -> str:
    """Waits until a run has ended, and returns its state, such as `SUCCEEDED` or `FAILED`.

    While the network or the server fails, it goes on waiting.

    Raises:
      ApiException: If the server refuses to show the run.
    """
    # `kfp.Client.wait_for_run_completion` waits for ever for a cancelled run.
    while True:
        try:
            state = client.get_run(run_id).state
        except kfp_server_api.ApiException as error:
            if error.status < 500:
                raise
        except urllib3.exceptions.HTTPError as error:
            print(f"waiting for the server: {error}")
        else:
            if state in ("SUCCEEDED", "SKIPPED", "FAILED", "CANCELED"):
                return state
        time.sleep(POLL_S)
