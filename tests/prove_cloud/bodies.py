"""What is sent to Vertex AI: the bodies of the requests, what they cost at most, and how they are shown."""

import json
import pathlib
from typing import Any

from google.cloud import aiplatform_v1 as v1
from kfp import compiler, dsl

from components.train.backends.worker_pools import plan_vertex
from components.train.cluster.cluster_file import Cluster
from pipelines import submit

_MACHINE = {"machine": "n1-standard-4"}
_PAIR = {"strategy": "multi_worker_mirrored", "chief": _MACHINE, "worker": _MACHINE}
_LONE = {"strategy": "one_device", "chief": _MACHINE}
_GPU = {"strategy": "one_device", "chief": {**_MACHINE, "accelerator": {"type": "NVIDIA_TESLA_T4"}}}
# Of each job: its pools, the code with which its last replica ends at first, whether all start again, minutes at most.
JOBS = {"restart-all": (_PAIR, 134, True, 15), "restart-one": (_PAIR, 134, False, 15), "lone": (_LONE, 143, True, 10)}
RUN_S = 20 * 60.0  # after which a run of the pipeline is cancelled
# Above the prices of "Vertex AI pricing" in US dollars: an hour of the machine, of the GPU, and the start of a run.
_MACHINE_USD, _GPU_USD, _RUN_USD = 0.40, 0.60, 0.03


def requests(identity: str, args: Any) -> dict[str, dict[str, Any]]:
    """Every request by name of its job: the bodies of `customJobs.create` and, of `pipeline-N`, `pipelineJobs.create`."""
    jobs = {**JOBS, **({"gpu": (_GPU, 0, True, 10)} if args.gpu else {})}
    source, place = (pathlib.Path(__file__).parent / "probe.py").read_text(), f"{args.bucket}/{identity}"
    commands = {name: (("python", "-c", source), [place, name, str(job[1])]) for name, job in jobs.items()}
    jobs["large"], commands["large"] = (_LONE, 0, True, 5), (("true",), ["x" * 100_000] * 15)
    made = {}
    for name, (pools, _, restart_all, minutes) in jobs.items():
        command, flags = commands[name]
        pools = plan_vertex(Cluster(**pools), args.image, flags, region=args.location, command=command)
        scheduling = {"timeout": f"{60 * minutes}s", "restart_job_on_worker_restart": restart_all}
        spec = {"worker_pool_specs": pools, "scheduling": scheduling, "service_account": args.service_account}
        job = {"display_name": f"{identity}-{name}", "job_spec": spec, "labels": {"run": identity}}
        made[name] = json.loads(v1.CustomJob.to_json(v1.CustomJob(job), including_default_value_fields=False))
    directory = place.replace("gs://", "/gcs/")
    job = {
        "display_name": identity,
        "template_path": str(_compiled(args.image)),
        "pipeline_root": f"{place}/root",
        "parameter_values": {"directory": f"{directory}/pipeline"},
        "labels": {"run": identity},
        "project": args.project,
        "location": args.location,
    }
    for name in ("pipeline-1", "pipeline-2"):
        made[name] = submit.request({**job, "job_id": f"{identity}-{name}"}, args.service_account)["pipelineJob"]
    return made


def _compiled(image: str) -> pathlib.Path:
    """Two steps: one that may be cached and notes that it was executed, and one that fails the first time."""

    def once(directory: str) -> str:
        import pathlib
        import uuid

        pathlib.Path(directory).mkdir(parents=True, exist_ok=True)
        (pathlib.Path(directory) / f"once-{uuid.uuid4().hex}").write_text("executed")
        return "done"

    def again(directory: str, after: str) -> None:
        import pathlib

        mark = pathlib.Path(directory) / "again"
        if not mark.exists():
            mark.write_text("failed")
            raise SystemExit("fails the first time")

    options = {"base_image": image, "install_kfp_package": False}
    first, second = dsl.component(once, **options), dsl.component(again, **options)

    @dsl.pipeline(name="prove-cloud")
    def prove(directory: str):
        second(directory=directory, after=first(directory=directory).output).set_retry(1).set_caching_options(False)

    path = pathlib.Path("build", "prove-cloud.yaml")
    path.parent.mkdir(exist_ok=True)
    compiler.Compiler().compile(prove, str(path))
    return path


def most_usd(args: Any) -> float:
    """What everything costs at most; the large request is cancelled before it has machines."""
    hours = sum(len(pools.keys() - {"strategy"}) * minutes / 60 for pools, _, _, minutes in JOBS.values())
    runs_usd = 2 * (_RUN_USD + RUN_S / 3600 * _MACHINE_USD)
    return hours * _MACHINE_USD + runs_usd + args.gpu * (_MACHINE_USD + _GPU_USD) / 6


def shown(bodies: dict[str, dict[str, Any]]) -> str:
    """The requests as JSON; of a long text only how it begins."""

    def short(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: short(each) for key, each in value.items()}
        if isinstance(value, list):
            return [short(each) for each in value]
        long = isinstance(value, str) and len(value) > 2000
        return f"{value[:70]}... ({len(value)} characters)" if long else value

    return json.dumps(short(bodies), indent=1, sort_keys=True) + "\n"
