"""Tests of what the fake Vertex AI refuses by its rules, and the product before it."""

import datetime
import json
import re
from unittest import mock

import proto
import pytest
from google.api_core import exceptions
from google.cloud import aiplatform_v1 as v1

from common.cli import as_list
from common.errors import UserError
from components.deploy.options import Options as DeployOptions
from components.register import serving
from components.register.registry import check_name
from components.train.__main__ import main as train
from components.train.backends.attempts import first_attempt
from components.train.backends.job_settings import JobSettings
from components.train.backends.vertex import request
from components.train.backends.worker_pools import plan_vertex
from components.train.cluster.cluster_file import Cluster
from components.train.cluster.lookup import load_cluster
from components.train.cluster.machines import GPUS, check_machine
from pipelines import submit
from pipelines.cloud_options import KEYS, check_place
from pipelines.vertex.submission import prepare
from tests.cloud import rules
from tests.cloud.conftest import IMAGE
from tests.cloud.front import Request
from tests.cloud.vertex import Vertex
from tests.errors import user_error
from tests.root import ROOT

CLUSTERS = sorted((ROOT / "clusters").glob("vertex-*.yaml"))
PARENT, LOCATION = Vertex.parent, Vertex.location
MODEL = f"{PARENT}/models/m-taxi"
ACCOUNT = "trains@demo-project.iam.gserviceaccount.com"
RUN = ROOT / "tests" / "pipelines" / "golden" / "run.yaml"


def config(**keys):
    """Returns the keys of a run on Vertex AI that gives all of them, but for some."""
    argv = ["--config", str(RUN)]
    for key, value in keys.items():
        argv += ["--set", f"{key}={json.dumps(value)}"]
    return KEYS.read(submit._parser().parse_args(argv))


SETTINGS = JobSettings.of(config())
NETWORK, KEY = SETTINGS.network, {"kms_key_name": SETTINGS.encryption_key}


def custom_job(cluster):
    """Returns the product's request for a training on a cluster."""
    pools = plan_vertex(cluster, IMAGE, ["--train-steps=9"], env=SETTINGS.environment)
    output = {"base_output_directory": {"output_uri_prefix": "gs://demo/jobs/a"}}
    arguments = SETTINGS.arguments(cluster, "training-1")
    body = request("training-1", {"worker_pool_specs": pools, **arguments, **output})
    return v1.CustomJob.from_json(json.dumps(body))


def full_job():
    """Returns such a request with more of the fields that have rules."""
    job = custom_job(load_cluster(str(ROOT / "clusters" / "vertex-ps.yaml")))
    chief, second, *_ = job.job_spec.worker_pool_specs
    chief.machine_spec = {
        "machine_type": "n1-standard-8",
        "accelerator_type": "NVIDIA_TESLA_T4",
        "accelerator_count": 1,
    }
    chief.disk_spec = {"boot_disk_type": "pd-ssd", "boot_disk_size_gb": 200}
    chief.nfs_mounts = [{"server": "10.0.0.1", "path": "/a", "mount_point": "b"}]
    second.python_package_spec = {
        "executor_image_uri": IMAGE,
        "package_uris": ["gs://demo/a.whl"],
        "python_module": "a",
        "env": [{"name": "A", "value": "b"}],
    }
    job.job_spec.scheduling.timeout = datetime.timedelta(hours=1)
    return job


LABELS = SETTINGS.all_labels("training-1") | {"name": "taxi"}
SUBMISSION = prepare(config())
CREATE = SUBMISSION.request("training-1", first_attempt([], SUBMISSION.bounds))
PIPELINE = v1.CreatePipelineJobRequest.from_json(json.dumps(CREATE)).pipeline_job
PIPELINE.name = f"{PARENT}/pipelineJobs/training-1"
METRIC = {"metric_name": "aiplatform.googleapis.com/prediction/online/cpu/utilization"}
# Valid requests with a value in every field that has a rule, by the path that they are sent to.
VALID = {
    "customJobs": full_job(),
    "pipelineJobs": PIPELINE,
    "schedules": v1.Schedule(
        display_name="weekly",
        cron="TZ=Europe/Berlin 0 3 * * 1",
        max_concurrent_run_count=1,
        max_run_count=9,
        create_pipeline_job_request={"parent": PARENT, "pipeline_job": PIPELINE},
    ),
    "models:upload": v1.Model(
        name=MODEL,
        display_name="taxi",
        artifact_uri="gs://demo/models/taxi/0",
        labels=LABELS,
        version_aliases=["blue"],
        container_spec=serving.container(IMAGE, "taxi"),
        encryption_spec=KEY,
    ),
    "endpoints": v1.Endpoint(
        display_name="taxi", labels=LABELS, network=NETWORK, traffic_split={"1": 100}
    ),
    "endpoints/1:deployModel": v1.DeployModelRequest(
        deployed_model={
            "model": f"{MODEL}@1",
            "id": "1",
            "service_account": ACCOUNT,
            "dedicated_resources": {
                "machine_spec": {"machine_type": "n1-standard-4"},
                "min_replica_count": 1,
                "max_replica_count": 2,
                "autoscaling_metric_specs": [METRIC],
            },
        },
        traffic_split={"0": 100},
    ),
    "batchPredictionJobs": v1.BatchPredictionJob(
        display_name="training-1",
        labels=LABELS,
        model=f"{MODEL}@1",
        service_account=ACCOUNT,
        input_config={
            "instances_format": "jsonl",
            "gcs_source": {"uris": ["gs://demo/rows.jsonl"]},
        },
        output_config={
            "predictions_format": "jsonl",
            "gcs_destination": {"output_uri_prefix": "gs://demo/jobs/a/predictions"},
        },
        dedicated_resources={
            "machine_spec": {"machine_type": "n1-standard-4"},
            "starting_replica_count": 1,
            "max_replica_count": 4,
        },
        manual_batch_tuning_parameters={"batch_size": 64},
        encryption_spec=KEY,
    ),
}
TEXTS = ["§", "Not small", "-", "a4-highgpu-8g", "n1-standard-4"]
MAPS = [{"Team": "a"}, {"team": "A"}, {"": "a"}, {"-": "a"}, {"a" * 64: "a"}, {"a": "a" * 64}]
MACHINES = [
    {"machine_type": "nonsense-7"},
    {"machine_type": "n1-standard-1"},
    {"machine_type": "g2-standard-12"},
    *(
        {"machine_type": machine, "accelerator_type": gpu, "accelerator_count": count}
        for machine, gpu, count in (
            ("n1-standard-8", "NVIDIA_TESLA_T4", 3),
            ("n1-standard-8", "NVIDIA_TESLA_K80", 1),
            ("e2-standard-8", "NVIDIA_TESLA_T4", 1),
            ("a2-highgpu-1g", "NVIDIA_TESLA_A100", 2),
        )
    ),
]
# Of what excludes another field, a value.
OTHERS = {
    "psc_interface_config": {"network_attachment": "a"},
    "private_service_connect_config": {"enable_private_service_connect": True},
    "enable_private_service_connect": True,
    "invoke_route_prefix": "/*",
}


def put(message, path, value):
    """Sets a field at a path of `rules.yaml`; None clears it."""
    *steps, last = path.split(".")
    for step in steps:
        message = message[0] if step == "0" else getattr(message, step)
    if last == "0":
        message[0] = type(message[0])()
    elif value is None:
        delattr(message, last)
    else:
        setattr(message, last, value)


def wrong_values(rule, message):  # noqa: C901 (one case for each kind of rule)
    """Yields, for ways to break a rule, the fields to set and their values."""
    field, kind, bound = rule["field"], rule["rule"], rule.get("value")
    value = rules.read(message, field)
    match kind:
        case "required":
            yield {field: None}
        case "one_of":
            yield dict.fromkeys(bound)
        case "pattern" if hasattr(value, "items"):
            yield from ({field: labels} for labels in MAPS)
        case "pattern":
            is_text = isinstance(value, str)
            start = value.rpartition("/")[0] + "/" if field == "name" else ""
            more = (f"{value} ", f"{value}!", value.upper()) if is_text else ()
            for text in (*(start + text for text in TEXTS), *more):
                if not re.fullmatch(bound, text):
                    yield {field: text if is_text else [*value, text]}
        case "most" if isinstance(value, str):
            yield {field: "x" * (bound + 1)}
        case "most" if hasattr(value, "items"):
            yield {field: {f"k{i}": "v" for i in range(bound + 1)}}
        case "most":
            yield {field: [value[0]] * (bound + 1)}
        case "range":
            is_duration = field == "timeout"
            for number in (-1, bound[0] - 1, bound[1] + 1):
                if number not in (0, float("inf")):
                    yield {field: datetime.timedelta(seconds=number) if is_duration else number}
        case "total":
            yield from ({field: split} for split in ({"0": 99}, {"0": 101}, {"0": 150, "1": -50}))
        case "machine":
            yield from ({field: machine} for machine in MACHINES)
        case "parameters":
            yield from ({field: values} for values in ({}, {"job_dir": "a", "other": 1}))
        case "same" | "among":
            yield {}  # The machines and GPU of the valid request are wrong where the rule applies.
        case "needs" if value:
            yield {bound: None}
        case "excludes":
            yield {field: value or "/a", bound: OTHERS[bound]}
        case "not_below":
            yield {bound: value + 1}
        case "region":
            yield {field: value.replace(LOCATION, "europe-west4")}


def places(message, path=()):
    """Yields a message and all messages inside it, each with the steps that lead to it."""
    yield path, message
    for name, field in type(message).meta.fields.items():
        value = getattr(message, name)
        for i, item in enumerate(value if field.repeated else [value] * (name in message)):
            if isinstance(item, proto.Message):
                yield from places(item, (*path, (name, i if field.repeated else None)))


def broken(verb):
    """Yields invalid requests of a kind: rule, place of the wrong field, request, message in it."""
    for steps, inside in places(VALID[verb]):
        for rule in rules.rules(type(inside)):
            for fields in wrong_values(rule, inside):
                root = type(VALID[verb])(VALID[verb])
                message, place = root, ""
                for name, index in steps:
                    message = getattr(message, name)
                    message = message if index is None else message[index]
                    place += f"{name}." if index is None else f"{name}[{index}]."
                for field, value in {**rule.get("when", {}), **fields}.items():
                    put(message, field, value)
                yield rule, place + rule["field"].replace(".0", "[0]"), root, message


@pytest.fixture
def sent():
    """Sends a request to a Vertex AI in this process that has a model and an endpoint."""
    made = Vertex()
    made.endpoints.start = lambda model: (mock.Mock(), "http://127.0.0.1:9/")

    def send(verb, message):
        query = {}
        if verb == "pipelineJobs":
            query = {"pipelineJobId": message.name.rpartition("/")[2]}
        if verb == "models:upload":
            id = message.name.rpartition("/")[2]
            message = v1.UploadModelRequest(parent=PARENT, model=message, model_id=id)
        body = type(message).to_json(message).encode()
        return made.answer(Request("POST", "", f"/v1/{PARENT}/{verb}", query, {}, body))

    for verb in ("models:upload", "endpoints"):
        send(verb, VALID[verb])
    return send


@pytest.mark.parametrize("verb", VALID)
def test_valid_request_is_accepted(sent, verb):
    message = VALID[verb]
    if verb == "models:upload":
        message = v1.Model(message, name=f"{MODEL}-2")
    assert sent(verb, message).status == 200


@pytest.mark.parametrize("path", CLUSTERS, ids=lambda path: path.stem)
def test_job_of_product_is_accepted(sent, path):
    for choice in load_cluster(str(path)).choices:
        assert sent("customJobs", custom_job(choice)).status == 200


@pytest.mark.parametrize("verb", VALID)
@pytest.mark.long
def test_broken_rule_is_refused_naming_field(sent, verb):
    for rule, field, message, _ in broken(verb):
        if field in ("endpoint", "name") and "pattern" not in rule["rule"]:
            continue  # They are in the path of the request.
        with pytest.raises(exceptions.InvalidArgument) as refused:
            pytest.fail(f"{rule} {field}: {sent(verb, message)}")
        assert f"Field: {field};" in str(refused.value), rule


def settings(**keys):
    """Gives flags of a job, each one value or a tuple of them."""
    flags = [f"--{key.replace('_', '-')}={value}" for key in keys for value in as_list(keys[key])]
    JobSettings.parse(flags, "plan").check(LOCATION)


def cluster(role="chief", pool=None, **keys):
    """Plans a cluster whose file has a pool of a role beside or in place of a plain chief."""
    strategy = "one_device" if role == "chief" else "multi_worker_mirrored"
    machine = {"machine": "n1-standard-8"}
    pools = {"chief": machine} | {role: machine | (pool or {})}
    plan_vertex(Cluster.read({"strategy": strategy, **pools, **keys}), IMAGE, [])


def hardware(machine):
    """Returns the keys of a pool for a `MachineSpec`."""
    keys = {"machine": machine.machine_type}
    accelerator = {"count": machine.accelerator_count} if machine.accelerator_count else {}
    if machine.accelerator_type:
        accelerator["type"] = machine.accelerator_type.name
    return keys | ({"accelerator": accelerator} if accelerator else {})


# Flag or key by the field that it decides.
FLAGS = {
    "CustomJob.labels": "labels",
    "CustomJobSpec.service_account": "training-service-account",
    "CustomJobSpec.network": "network",
    "CustomJobSpec.tensorboard": "tensorboard",
    "CustomJobSpec.worker_pool_specs": "fifth|chief",
    "CustomJobSpec.worker_pool_specs.0": "chief",
    "CustomJobSpec.worker_pool_specs.0.replica_count": "chief",
    "ContainerSpec.env": "env",
    "ContainerSpec.image_uri": "--image",
    "DeployedModel.service_account": "--service-account",
    "DiskSpec.boot_disk_size_gb": "disk.size_gb",
    "DiskSpec.boot_disk_type": "disk.type",
    "EncryptionSpec.kms_key_name": "encryption-key|encryption_key",
    "EnvVar.name": "env",
    "EnvVar.value": "env",
    "GcsDestination.output_uri_prefix": "job_dir",
    "GcsSource.uris": "predict",
    "MachineSpec.accelerator_count": "accelerator",
    "MachineSpec.accelerator_type": "accelerator",
    "Model.display_name": "model name",
    "Model.name": "model name",
    "ModelContainerSpec.image_uri": "--image",
    "PipelineJob.service_account": "service_account",
    "RuntimeConfig.gcs_output_directory": "--bucket",
    "Scheduling.timeout": "scheduling.timeout|scheduling.strategy",
    "WorkerPoolSpec.machine_spec": "chief",
    "WorkerPoolSpec.machine_spec.machine_type": "chief|disk.type",
    "WorkerPoolSpec.replica_count": "worker.replicas",
}
# What the product lets through, by field and rule, and why.
DIFFERENCES = {
    ("CustomJobSpec.worker_pool_specs", "same"): "no setting asks for FLEX_START",
    ("CustomJobSpec.network", "excludes"): "no setting makes the other kind of network",
    ("GcsDestination.output_uri_prefix", "required"): "without the key it is the run's directory",
    ("GcsSource.uris", "required"): "without the key nothing is predicted",
    ("MachineSpec.accelerator_type", "needs"): "the count is 1 where a cluster file has none",
}


def ask(field, message):  # noqa: C901 (one case for each flag)
    """Gives the product the value of a field, by the flag or key that decides it."""
    value = rules.read(message, field.partition(".")[2])
    match field:
        case "CustomJob.labels":
            ours = SETTINGS.all_labels("training-1").keys() - {"team"}
            settings(labels=tuple(f"{k}={v}" for k, v in value.items() if k not in ours))
        case "CustomJobSpec.service_account" | "CustomJobSpec.network":
            key = {"network": "network"}.get(field.partition(".")[2], "training_service_account")
            settings(**{key: value})
        case "CustomJobSpec.tensorboard":
            account = message.service_account or None
            settings(tensorboard=value, training_service_account=account)
        case "CustomJobSpec.worker_pool_specs":
            roles = ("chief", "worker", "ps", "evaluator", "fifth")[: len(value)]
            Cluster.read({"strategy": "parameter_server", **{role: {} for role in roles}})
        case "CustomJobSpec.worker_pool_specs.0":
            Cluster.read({"strategy": "one_device", **({"chief": {}} if value else {})})
        case "CustomJobSpec.worker_pool_specs.0.replica_count":
            cluster(pool={"replicas": value})
        case "ContainerSpec.env":
            settings(env=tuple(f"V{i}=x" for i in range(len(value))))
        case "ContainerSpec.image_uri":
            flags = f"--cluster {CLUSTERS[0]} --backend vertex --project my-project".split()
            train([*flags, "--image", value, "--command", "true", "--job-dir", "gs://demo/a"])
        case "DeployedModel.service_account":
            DeployOptions(registry="r", name="m", service_account=value)
        case "DiskSpec.boot_disk_size_gb":
            cluster(disk={"size_gb": value})
        case "DiskSpec.boot_disk_type":
            cluster(disk={"type": value})
        case "EncryptionSpec.kms_key_name":
            settings(encryption_key=value)
        case "EnvVar.name" | "EnvVar.value":
            settings(env=f"{message.name}={message.value}")
        case "GcsDestination.output_uri_prefix":
            prepare(config(job_dir=value))
        case "GcsSource.uris":
            prepare(config(predict=[*value]))
        case "MachineSpec.accelerator_count" | "MachineSpec.accelerator_type":
            cluster(pool=hardware(message))
        case "Model.name":
            check_name(value.rpartition("/")[2].removeprefix(serving.MODEL_ID_PREFIX))
        case "Model.display_name":
            check_name(value)
        case "ModelContainerSpec.image_uri":
            serving.container(value, "taxi")
        case "PipelineJob.service_account":
            config(service_account=value)
        case "RuntimeConfig.gcs_output_directory":
            check_place(config(bucket=value.removesuffix("/runs")))
        case "Scheduling.timeout":
            strategy = {"strategy": message.strategy.name}
            cluster(scheduling={"timeout": f"{value:.0f}s", **strategy})
        case "WorkerPoolSpec.machine_spec":
            cluster(pool=hardware(value))
        case "WorkerPoolSpec.machine_spec.machine_type":
            disk = {"type": message.disk_spec.boot_disk_type or "pd-ssd"}
            cluster(pool=hardware(message.machine_spec) if value else {"machine": None}, disk=disk)
        case "WorkerPoolSpec.replica_count":
            cluster("worker", {"replicas": value})


@pytest.mark.parametrize("field", FLAGS)
def test_product_refuses_naming_flag(field):
    kind, _, path = field.partition(".")
    wrong = [
        (rule["rule"], message)
        for verb in VALID
        for rule, _, _, message in broken(verb)
        if type(message).__name__ == kind and rule["field"] == path
    ]
    accepted = {(field, rule) for rule, message in wrong if not is_refused(field, message)}
    assert wrong and accepted == {each for each in DIFFERENCES if each[0] == field}
    right = [
        inside
        for message in VALID.values()
        for _, inside in places(message)
        if type(inside).__name__ == kind and rules.read(inside, path)
    ]
    # A valid image would start a job.
    assert field == "ContainerSpec.image_uri" or not all(is_refused(field, each) for each in right)


def is_refused(field, message):
    """Returns whether the product refuses the value of a field, naming the flag."""
    try:
        ask(field, message)
    except UserError as error:
        assert re.search(FLAGS[field], str(error)), error
        return True
    return False


def machines(table):
    """Returns the triples of machine, GPU and number of GPUs in a table."""
    return {
        (machine, gpu.replace("ACCELERATOR_TYPE_UNSPECIFIED", ""), count)
        for machine, gpus in table.items()
        for gpu, counts in gpus.items()
        for count in counts
    }


def test_machines_are_those_of_product():
    offered, ours = machines(rules.MACHINES["training"]), machines(GPUS)
    assert not ours - offered
    for machine in {machine for machine, gpu, _ in offered - ours if gpu != "NVIDIA_TESLA_P100"}:
        with user_error(r"a TPU|needs a reservation"):
            check_machine(machine)


def test_unknown_field_is_refused():
    sent = Request("POST", "", f"/v1/{PARENT}/customJobs", {}, {}, b'{"displayNam": "a"}')
    with pytest.raises(exceptions.InvalidArgument, match="displayNam"):
        Vertex().answer(sent)


def test_each_rule_is_broken_by_request():
    cases = [
        (id(rule), f"{type(message).__name__}.{rule['field']}")
        for verb in VALID
        for rule, _, _, message in broken(verb)
    ]
    assert len({*cases}) == 137  # A rule that is lost is noticed here.
    listed = {
        (id(rule), f"{kind}.{rule['field']}")
        for rule in rules.RULES
        for kind in rule["kind"].split()
    }
    # Those of requests that create nothing are left.
    assert {field for _, field in listed - {*cases}} == {
        "MergeVersionAliasesRequest.version_aliases",
        "UndeployModelRequest.traffic_split",
    }
