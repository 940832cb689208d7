"""Real training: real processes, real checkpoints, real kills."""

from __future__ import annotations

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np
import psutil
import pytest

pytestmark = pytest.mark.cluster
ROOT = pathlib.Path(__file__).parents[2]
STEPS, EVERY = 400, 100
CLUSTERS = {
    "mirrored": "{strategy: mirrored, chief: {}}",
    "evaluated": "{strategy: multi_worker_mirrored, chief: {}, worker: {}, evaluator: {}}",
}


class Job:
    """A training job on digits: a cluster file, a job directory, and a launcher whenever it is started."""

    def __init__(self, cluster: pathlib.Path, data: pathlib.Path, directory: pathlib.Path) -> None:
        self._cluster, self._data, self.directory = cluster, data, directory
        self.launcher: subprocess.Popen[str] | None = None

    def start(self, *flags: str, steps: int = STEPS) -> None:
        command = [sys.executable, "-m", "components.train", "--cluster", str(self._cluster), "--"]
        known = ["--data-dir", self._data, "--job-dir", self.directory, "--train-steps", steps]
        known += ["--checkpoint-num-steps", EVERY, *flags]
        self.launcher = subprocess.Popen(
            [*command, *map(str, known)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def finish(self) -> tuple[int, str]:
        output = self.launcher.communicate(timeout=120)[0]
        return self.launcher.returncode, output

    def run(self, *flags: str, steps: int = STEPS) -> str:
        self.start(*flags, steps=steps)
        code, output = self.finish()
        assert code == 0, output
        return output

    def wait_for_checkpoint(self) -> None:
        deadline = time.monotonic() + 90
        while not (self.directory / "checkpoints" / "checkpoint").exists():
            assert self.launcher.poll() is None, self.launcher.communicate()[0]
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def replica(self, role: str, index: int = 0) -> psutil.Process:
        for process in psutil.Process(self.launcher.pid).children(recursive=True):
            config = process.environ().get("TF_CONFIG")
            task = json.loads(config)["task"] if config else {"type": "chief", "index": 0}
            if "trainer.task" in process.cmdline() and (task["type"], task["index"]) == (role, index):
                return process
        raise AssertionError(f"no {role}/{index}")

    def state(self, step: int = STEPS) -> dict[str, np.ndarray]:
        import tensorflow as tf

        reader = tf.train.load_checkpoint(str(self.directory / "checkpoints" / f"ckpt-{step}"))
        names = [n for n in reader.get_variable_to_dtype_map() if "OBJECT_GRAPH" not in n and "save_counter" not in n]
        return {name: reader.get_tensor(name) for name in names}

    def events(self, replica: str = "chief-0") -> list[dict]:
        lines = []
        for path in sorted(self.directory.glob(f"journal-{replica}-*.jsonl")):
            lines += path.read_text().splitlines()
        return sorted(map(json.loads, lines), key=lambda event: event["time"])


@pytest.fixture
def job(digits, tmp_path) -> Iterator[Callable[[str, str], Job]]:
    made: list[Job] = []

    def make(cluster: str, name: str = "job") -> Job:
        file = tmp_path / f"{cluster}.yaml"
        file.write_text(CLUSTERS.get(cluster) or (ROOT / "clusters" / f"{cluster}.yaml").read_text())
        made.append(Job(file, digits, tmp_path / name))
        return made[-1]

    yield make
    for each in made:
        if each.launcher and each.launcher.poll() is None:
            each.launcher.kill()
            each.launcher.wait()


def assert_same_bits(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> None:
    assert a.keys() == b.keys()
    assert len(a) > 10
    differing = [name for name in a if not np.array_equal(a[name], b[name])]
    assert not differing


@pytest.mark.parametrize("cluster", ["local", "mirrored", "local-sync"])
def test_a_killed_and_resumed_job_has_the_weights_of_a_straight_one_to_the_last_bit(job, cluster):
    straight, killed = job(cluster, "straight"), job(cluster, "killed")
    flags = ["--deterministic", *(["--logical-cpus", "2"] if cluster == "mirrored" else [])]
    straight.run(*flags)
    killed.start(*flags)
    killed.wait_for_checkpoint()
    victim = killed.replica("worker" if cluster == "local-sync" else "chief")
    victim.kill()
    code, output = killed.finish()
    assert code == 137, output
    killed.run(*flags)
    resumed = [e for e in killed.events() if e["event"] == "resume"]
    assert [e["step"] % EVERY for e in resumed] == [0]
    assert 0 < resumed[0]["step"] < STEPS
    assert_same_bits(straight.state(), killed.state())


def test_batch_statistics_are_of_the_whole_batch_unless_local_ones_are_asked_for(job):
    def train(name: str, cpus: int, statistics: str) -> np.ndarray:
        one = job("mirrored", name)
        flags = ["--model", "resnet", "--num-layers", "8", "--augment", "none", "--batch-size", "32"]
        one.run(*flags, "--logical-cpus", str(cpus), "--batch-norm-statistics", statistics, steps=2)
        return one.state(2)["variables/model_000/.ATTRIBUTES/VARIABLE_VALUE"]

    whole, synchronized = train("whole", 1, "synchronized"), train("two", 2, "synchronized")
    np.testing.assert_allclose(synchronized, whole, rtol=2e-3, atol=2e-4)
    assert np.abs(train("local", 2, "local") - whole).max() > 10 * np.abs(synchronized - whole).max()


def test_sigterm_to_one_synchronous_replica_saves_at_one_step_and_the_resume_is_exact(job):
    straight, stopped = job("local-sync", "straight"), job("local-sync", "stopped")
    straight.run("--deterministic")
    stopped.start("--deterministic")
    stopped.wait_for_checkpoint()
    os.kill(stopped.replica("worker").pid, signal.SIGTERM)
    code, output = stopped.finish()
    assert code == 143, output
    at = {e["step"] for name in ("chief-0", "worker-0") for e in stopped.events(name) if e["event"] == "preempted"}
    assert len(at) == 1
    assert f"saved at step {at.pop()}" in output
    stopped.run("--deterministic")
    assert_same_bits(straight.state(), stopped.state())


def test_the_evaluator_scores_the_last_checkpoint_before_the_chief_leaves(job):
    evaluated = job("evaluated")
    evaluated.run("--eval-every-steps", "50", "--export", "best")
    assert not [e for e in evaluated.events() if e["event"] == "evaluation"]
    scored = [e for e in evaluated.events("evaluator-0") if e["event"] == "evaluation"]
    assert scored[-1]["step"] == STEPS
    assert all(e["step"] % EVERY == 0 for e in scored)
    record = json.loads((evaluated.directory / "DONE.json").read_text())
    assert record["validation"]["latest"]["step"] == STEPS
    best = max(scored, key=lambda e: (e["accuracy"], -e["loss"]))
    assert record["validation"]["best"]["step"] == best["step"]
    exported = [e for e in evaluated.events() if e["event"] == "export"]
    assert exported[0]["exported_step"] == best["step"]
    points = scalars(evaluated.directory / "logs" / "validation")
    assert points["accuracy"][STEPS] == pytest.approx(scored[-1]["accuracy"])


def scalars(directory: pathlib.Path) -> dict[str, dict[int, float]]:
    """What TensorBoard's own reader finds: values by name and step."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    events = EventAccumulator(str(directory), size_guidance={"tensors": 0}).Reload()
    names = events.Tags()["tensors"]
    return {name: {e.step: float(make_ndarray(e.tensor_proto)) for e in events.Tensors(name)} for name in names}


def test_the_chief_evaluates_when_asked_and_saves_by_time(job):
    alone = job("local")
    alone.run("--eval-every-steps", "150", "--checkpoint-secs", "0.5", "--precision", "bfloat16", steps=900)
    events = alone.events()
    assert [e["step"] for e in events if e["event"] == "evaluation"] == [150, 300, 450, 600, 750, 900]
    saves = [e for e in events if e["event"] == "checkpoint"]
    assert saves[-1]["step"] == 900
    assert any(e["step"] % EVERY for e in saves)
    assert all(e["waited_s"] < e["seconds"] + 0.1 for e in saves)
    assert [e for e in events if e["event"] == "evaluation"][-1]["accuracy"] > 0.9
    train, validation = (scalars(alone.directory / "logs" / part) for part in ("train", "validation"))
    assert {"loss", "accuracy", "examples_per_s", "learning_rate"} <= train.keys()
    assert 900 in train["loss"]
    assert set(validation["loss"]) == {150, 300, 450, 600, 750, 900}


def test_parameter_servers_count_every_step_once_over_a_stop_and_a_resume(job):
    asynchronous = job("local-ps")
    asynchronous.start()
    asynchronous.wait_for_checkpoint()
    os.kill(asynchronous.replica("ps").pid, signal.SIGTERM)
    code, output = asynchronous.finish()
    assert code == 143, output
    stopped_at = [e["step"] for e in asynchronous.events() if e["event"] == "preempted"]
    assert stopped_at
    assert not (asynchronous.directory / "STOP").exists()
    output = asynchronous.run()
    assert f"from step {stopped_at[0]} to {STEPS}" in output
    state = asynchronous.state()
    # Our own step, and the optimizer's counter, its first variable.
    counters = {n: int(v) for n, v in state.items() if n.startswith(("step/", "variables/optimizer_000/"))}
    assert len(counters) == 2
    assert set(counters.values()) == {STEPS}
    record = json.loads((asynchronous.directory / "DONE.json").read_text())
    assert record["step"] == STEPS
    assert record["accuracy"] > 0.9


def test_a_finished_job_is_a_no_op_before_tensorflow_is_imported_and_its_model_needs_no_project_code(job, digits):
    done = job("local")
    output = done.run("--seed", "3")
    assert re.search(r"step 400/400 +loss \d\.\d+ +accuracy \d\.\d+ +[\d]+ examples/s", output)
    flags = ["--data-dir", str(digits), "--job-dir", str(done.directory), "--seed", "3", "--train-steps", str(STEPS)]
    again = f"import sys; from trainer.task import main; code = main({flags!r}); assert 'tensorflow' not in sys.modules"
    result = subprocess.run(
        [sys.executable, "-c", f"{again}; sys.exit(code)"], capture_output=True, text=True, cwd=ROOT
    )
    assert result.returncode == 0, result.stderr
    assert "already done at step 400" in result.stdout
    refused = subprocess.run(
        [sys.executable, "-m", "trainer.task", *flags[:-1], "500", "--seed", "4"],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert refused.returncode == 2
    assert "seed: 3 -> 4" in refused.stderr
    program = (
        "import numpy as np, sys, tensorflow as tf\n"
        "serve = tf.saved_model.load(sys.argv[1]).signatures['serving_default']\n"
        "out = serve(image=np.zeros((3, 8, 8, 1), np.uint8))\n"
        "assert out['probabilities'].shape == (3, 10) and out['class_index'].shape == (3,)\n"
        "assert out['class_name'].numpy()[0] == str(int(out['class_index'][0])).encode()\n"
        "assert 'trainer' not in sys.modules\n"
    )
    model = str(done.directory / "model")
    clean = subprocess.run([sys.executable, "-I", "-c", program, model], capture_output=True, text=True, cwd="/")
    assert clean.returncode == 0, clean.stderr
