"""Submits the pipeline to Vertex AI: `python pipelines/submit.py --help`.

`--dry-run` prints the exact request and sends nothing; what is not given yet is filled in with a name that says so.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import os
import pathlib
import re
import sys
from typing import Any

from components.train.backends.heeded import ignored
from components.train.backends.worker_pools import plan_vertex
from components.train.cluster.cluster_file import Cluster
from components.train.cluster.quotas import quota_warnings
from pipelines.arguments import add_flags, cache_key, pipeline_arguments
from pipelines.bucket import bucket_digest, mounted
from pipelines.compile import compile_specs
from trainer.base.errors import Parser, UserError, run_cli

DEFAULT_CLUSTER = "clusters/vertex-cpu.yaml"
_DIGEST = re.compile(r"[a-z0-9][\w.:/-]*@sha256:[0-9a-f]{64}")
_FORMS = {
    "project": (re.compile(r"[a-z][a-z0-9-]{4,28}[a-z0-9]"), "the id of a project, such as my-project"),
    "location": (re.compile(r"[a-z]+-[a-z]+\d"), "a region, such as us-central1"),
    "bucket": (re.compile(r"gs://[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]"), "a bucket, such as gs://my-bucket"),
}
_EXAMPLES = {
    "project": "my-project",
    "bucket": "gs://my-bucket",
    "image": f"us-docker.pkg.dev/my-project/training/tfrecord-training@sha256:{'0' * 64}",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Submission:
    """A run on Vertex AI, ready to be submitted.

    Attributes:
      spec: Path of the compiled spec.
      project: Id of the project.
      location: Region.
      run_id: Id of the pipeline job, and label `run` of all that it makes.
      pipeline_root: Where the steps' artifacts go, `gs://...`.
      arguments: Of the pipeline.
      cache: Whether results of earlier runs may be taken.
      service_account: That the run acts as; empty for the project's default.
    """

    spec: str
    project: str
    location: str
    run_id: str
    pipeline_root: str
    arguments: dict[str, Any]
    cache: bool
    service_account: str

    def job(self, **client: Any):
        """The `aiplatform.PipelineJob`, not yet submitted. `client` goes to it, for example `credentials`."""
        from google.cloud import aiplatform  # 2 s

        return aiplatform.PipelineJob(
            display_name=self.run_id,
            template_path=self.spec,
            job_id=self.run_id,
            pipeline_root=self.pipeline_root,
            parameter_values=self.arguments,
            # None leaves each step what the spec says: only `convert` may come from the cache.
            enable_caching=None if self.cache else False,
            labels={"run": self.run_id},
            project=self.project,
            location=self.location,
            **client,
        )

    def request(self) -> dict[str, Any]:
        """The `pipelineJobs.create` request as JSON; its body is made by Google's own client."""
        from google.auth.credentials import AnonymousCredentials

        body = self.job(credentials=AnonymousCredentials()).to_dict()
        if self.service_account:
            body["serviceAccount"] = self.service_account
        parent = f"projects/{self.project}/locations/{self.location}"
        return {"parent": parent, "pipelineJobId": self.run_id, "pipelineJob": body}


def main() -> int:
    """Runs the command line. Returns 0 when the run was submitted, and with --wait 1 when it did not succeed."""
    args = _parser().parse_args()
    if args.dry_run:
        missing = [flag for flag in _EXAMPLES if not getattr(args, flag) and not (flag == "image" and args.spec)]
        for flag in missing:
            setattr(args, flag, _EXAMPLES[flag])
        if missing:
            print(f"note: {', '.join(f'--{flag}' for flag in missing)} not given; examples stand in", file=sys.stderr)
    submission = prepare(args)
    if args.dry_run:
        print(json.dumps(submission.request(), indent=2))
        return 0
    return _submit(submission, args.wait)


def _parser() -> Parser:
    p = Parser(
        prog="pipelines/submit.py",
        description="Submits the pipeline to Vertex AI Pipelines; everything is checked before.",
    )
    add_flags(p, cluster=DEFAULT_CLUSTER)
    cloud = p.add_argument_group("Vertex AI")
    cloud.add_argument("--project", default=os.environ.get("GOOGLE_CLOUD_PROJECT"), help="id of the project")
    cloud.add_argument("--location", default="us-central1", help="region")
    cloud.add_argument("--bucket", help="gs://BUCKET for everything that the run writes")
    cloud.add_argument("--image", help="container image of the project, by digest")
    cloud.add_argument("--spec", help="a spec that pipelines/compile.py wrote, instead of --image")
    cloud.add_argument("--service-account", default="", help="that the run acts as (None: the project's default)")
    cloud.add_argument("--no-cache", dest="cache", action="store_false", help="convert again")
    cloud.add_argument("--dry-run", action="store_true", help="print the request and send nothing")
    cloud.add_argument("--wait", action="store_true", help="until the run has ended")
    return p


def prepare(args: argparse.Namespace) -> Submission:
    """Checks every flag, and compiles the spec unless there is one.

    Raises:
      UserError: If anything is missing or wrong, or the image is not given by digest.
    """
    for flag, (form, meaning) in _FORMS.items():
        if not form.fullmatch(getattr(args, flag) or ""):
            raise UserError(f"--{flag} {getattr(args, flag) or 'is missing'}: give {meaning}")
    cluster = Cluster.load(args.cluster, args.trainer_flags)
    arguments = pipeline_arguments(args, cluster, source=mounted(args.source) if args.source else "")
    registry = f"vertex://{args.project}/{args.location}"
    spec, image = _spec(args, "" if args.dry_run else _parent_model(registry, arguments["name"]))
    plan_vertex(cluster, image, [], region=args.location)  # refuses pools that cannot run there
    for note in ignored(cluster, "submit"):
        print(f"note: {note}", file=sys.stderr)
    for warning in quota_warnings(cluster, args.location):
        print(f"warning: {warning}", file=sys.stderr)
    run_id = f"training-{datetime.datetime.now():%Y%m%d-%H%M%S}"
    root = f"{args.bucket}/runs"
    timeout_s = cluster.scheduling.timeout_s
    return Submission(
        spec=spec,
        project=args.project,
        location=args.location,
        run_id=run_id,
        pipeline_root=root,
        arguments={
            **arguments,
            "source_digest": bucket_digest(args.source) if args.source else cache_key(args.dataset, "", args.schema),
            "run_id": run_id,
            "job_dir": f"{root}/{run_id}/job",
            "registry": registry,
            "project": args.project,
            "location": args.location,
            "scheduling_strategy": cluster.scheduling.strategy,
            **({"timeout": f"{timeout_s}s"} if timeout_s else {}),
        },
        cache=args.cache,
        service_account=args.service_account,
    )


def _parent_model(registry: str, name: str) -> str:
    """Resource name of the model that new versions of `name` belong to; empty while there is none."""
    from components.register.vertex import VertexRegistry  # 2 s

    return VertexRegistry.parse(registry).resource_name(name) or ""


def _spec(args: argparse.Namespace, parent_model: str) -> tuple[str, str]:
    """Path of the spec, and the image in it."""
    if bool(args.spec) == bool(args.image):
        raise UserError("give either --image REF@sha256:... or --spec FILE, as pipelines/compile.py writes it")
    if not args.spec:
        args.spec = str(compile_specs(args.image, "build", parent_model)[1])
    try:
        text = pathlib.Path(args.spec).read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"--spec {args.spec}: {error.strerror}; make it with pipelines/compile.py") from None
    images = set(re.findall(r"^ +image: '?([^\s']+)'?$", text, re.MULTILINE))
    ours = [image for image in images if "google-cloud-pipeline-components" not in image]
    if len(ours) != 1 or "CustomJob" not in text:
        raise UserError(f"--spec {args.spec} is no Vertex spec of this pipeline; take training-vertex.yaml")
    if not _DIGEST.fullmatch(ours[0]):
        raise UserError(f"{ours[0]} is not given by digest; a run is reproducible only with REF@sha256:<64 digits>")
    if parent_model not in text:
        raise UserError(f"--spec {args.spec} would make a second model; compile it with --parent-model {parent_model}")
    return args.spec, ours[0]


def _submit(submission: Submission, wait: bool) -> int:
    from google.api_core.exceptions import GoogleAPICallError
    from google.auth.exceptions import GoogleAuthError

    try:
        job = submission.job()
        job.submit(service_account=submission.service_account or None)
    except GoogleAuthError as error:
        raise UserError(
            f"no credentials for Google Cloud ({error}); run: gcloud auth application-default login"
        ) from None
    except GoogleAPICallError as error:
        raise UserError(f"Vertex AI refused the run: {error.message}") from None
    print(f"submitted {submission.run_id}: {job._dashboard_uri()}")
    if not wait:
        return 0
    try:
        job.wait()
    except RuntimeError as error:  # what the client raises when the run failed
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    run_cli(main)
