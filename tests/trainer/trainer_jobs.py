"""Training jobs as real processes, each replica `trainer.task` with an environment of its own.

They are forked from a server that has imported TensorFlow, which is most of what a small job would
cost:

    job = Job(data, tmp_path / "job")
    job.start("chief", "worker", flags="--train-steps 200")
    job.kill("worker-0")
    codes = job.wait()  # {"chief-0": 1, "worker-0": -9}
"""

import collections
import contextlib
import ctypes
import hashlib
import json
import multiprocessing
import os
import random
import re
import signal
import time

from common.ports import reserved
from trainer.cluster.member import POOL_ROLES

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["trainer.main_loop"])
# As the trainer does; the server that imports inherits it.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
LIMIT_S = 120
CLUSTERS: dict[str, tuple[list[str], str]] = {  # the roles of the replicas, and flags
    "one_device": (["chief"], ""),
    "mirrored": (["chief"], " --strategy mirrored"),
    "two_workers": (["chief", "worker"], ""),
    # Whose one worker takes one step after the other, of files that are mapped into its memory.
    "parameter_server": (["chief", "worker", "ps"], " --reader mapped"),
}


def _replica(flags, environ, log):
    """Runs in the new process."""
    os.setsid()
    # PR_SET_PDEATHSIG: not to outlive tests that are killed.
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    for name in ("TF_CONFIG", "CLUSTER_SPEC", POOL_ROLES, "TRAINER_ATTEMPT"):
        os.environ.pop(name, None)
    os.environ.update(environ)
    import tensorflow as tf

    from common.cli import run_cli
    from trainer import task

    if "mirrored" in flags:  # over two parts of the processor, in place of GPUs
        (processor,) = tf.config.list_physical_devices("CPU")
        tf.config.set_logical_device_configuration(
            processor, [tf.config.LogicalDeviceConfiguration()] * 2
        )

    run_cli(lambda: task.main(flags))


class Job:
    """A job directory, and the replicas that work on it."""

    def __init__(self, data, directory):
        self.data, self.directory = data, directory
        self._replicas: dict[str, multiprocessing.process.BaseProcess] = {}
        self._ports = contextlib.ExitStack()
        self.environ: dict[str, str] = {}  # of every replica

    def start(self, *roles, flags):
        """Starts one replica for each role named, when those of before have ended."""
        self.close()
        self.directory.mkdir(exist_ok=True)
        training = [role for role in roles if role != "evaluator"]
        ports = self._ports.enter_context(reserved(len(training)))
        addresses: dict[str, list[str]] = collections.defaultdict(list)
        for role, port in zip(training, ports, strict=True):
            addresses[role].append(f"127.0.0.1:{port}")
        command = f"--data-dir {self.data} --job-dir {self.directory} {flags}".split()
        counts: collections.Counter[str] = collections.Counter()
        for role in roles:
            task = {"type": role, "index": counts[role]}
            name = f"{role}-{counts[role]}"
            counts[role] += 1
            environ = {
                **self.environ,
                "TF_CONFIG": json.dumps({"cluster": addresses, "task": task}),
                POOL_ROLES: ",".join(dict.fromkeys(roles)),
                "TRAINER_STATUS": str(self.directory / f"{name}.status"),
                "TRAINER_THREADS": "1" if len(roles) > 1 else "",
            }
            arguments = command, environ, str(self.log(name))
            process = _FORKS.Process(target=_replica, args=arguments, daemon=True)
            process.start()
            self._replicas[name] = process

    def wait(self, *names, within_s=LIMIT_S):
        """Exit codes of the named replicas, or of all: negative for a signal, None if it runs."""
        deadline = time.monotonic() + within_s
        names = names or tuple(self._replicas)
        for name in names:
            self._replicas[name].join(max(0, deadline - time.monotonic()))
        print(self.output())  # for a test that fails
        return {name: self._replicas[name].exitcode for name in names}

    def run(self, *roles, flags):
        """Starts and waits for success; the output. Servers of parameters serve until killed."""
        self.start(*roles, flags=flags)
        codes = self.wait("chief-0") if "ps" in roles else self.wait()
        self.close()
        assert set(codes.values()) == {0}, codes
        return self.output()

    def kill(self, *names):
        """SIGKILL to the named replicas, or to all."""
        for name in names or self._replicas:
            self._replicas[name].kill()

    def terminate(self, name):
        """SIGTERM, as a preempted machine sends it."""
        self._replicas[name].terminate()

    def until(self, condition):
        """Waits until the condition holds; fails if a replica ends before."""
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            codes = {name: process.exitcode for name, process in self._replicas.items()}
            running = set(codes.values()) == {None}
            assert running and time.monotonic() < deadline, f"{codes}\n{self.output()}"
            time.sleep(0.002)

    def until_step(self, step):
        """Waits until the chief has done that step."""
        self.until(lambda: max(self.steps("step"), default=0) >= step)

    def phase(self, name="chief-0"):
        """Returns the phase in the replica's newest status."""
        path = self.directory / f"{name}.status"
        return json.loads(path.read_text())["phase"] if path.exists() else None

    def close(self):
        """Ends what still runs."""
        self.kill()
        for process in self._replicas.values():
            process.join()
        self._replicas.clear()
        self._ports.close()

    def log(self, name):
        """Returns the path of a replica's output in all attempts."""
        return self.directory.with_name(f"{self.directory.name}.{name}.log")

    def output(self):
        """Returns the output of all replicas."""
        logs = sorted(self.directory.parent.glob(f"{self.directory.name}.*.log"))
        return "".join(f"--- {log.name}\n{log.read_text()}" for log in logs)

    def read(self, name):
        """A JSON file of the job directory."""
        return json.loads((self.directory / name).read_text())

    def served(self, **columns):
        """Returns the answers of the exported model."""
        import tensorflow as tf

        model = tf.saved_model.load(str(self.directory / "model"))
        answers = model.signatures["serving_default"](**columns)
        return {name: answer.numpy() for name, answer in answers.items()}

    def checkpoints(self):
        """Steps of the checkpoints that can be read; a writer may have been killed."""
        import tensorflow as tf

        steps = []
        for index in (self.directory / "checkpoints").glob("ckpt-*.index"):
            with contextlib.suppress(tf.errors.OpError):
                tf.train.load_checkpoint(str(index.with_suffix("")))
                steps.append(int(index.stem.split("-")[1]))
        return sorted(steps)

    def variables(self, step):
        """All of a checkpoint: step, weights, optimizer slots."""
        import tensorflow as tf

        reader = tf.train.load_checkpoint(str(self.directory / "checkpoints" / f"ckpt-{step}"))
        names = [n for n in reader.get_variable_to_dtype_map() if not re.search("GRAPH|save_c", n)]
        assert len(names) > 10
        return {name: reader.get_tensor(name) for name in sorted(names)}

    def trained(self, model, step):
        """The model with the weights of a checkpoint."""
        from trainer.nn import weights

        key, variables = "variables/model.S{}/.ATTRIBUTES/VARIABLE_VALUE", self.variables(step)
        names = {name: key.format(name.replace("/", ".S")) for name in weights.named(model)}
        weights.put({name: variables[key] for name, key in names.items()}, model)
        return model

    def digest(self, step):
        """SHA-256 of all of a checkpoint."""
        values = [(k, v.dtype, v.shape, v.tobytes()) for k, v in self.variables(step).items()]
        return hashlib.sha256(repr(values).encode()).hexdigest()

    def events(self, kind, replica="chief-0"):
        """The events of a kind in the newest attempt."""
        files = self.directory.glob(f"journal-{replica}-*.jsonl")
        newest = max(files, key=lambda path: int(path.stem.split("-")[-1]), default=None)
        # The last line may be half written.
        lines = newest.read_text().split("\n")[:-1] if newest else []
        return [event for event in map(json.loads, lines) if event["event"] == kind]

    def steps(self, kind, replica="chief-0"):
        """The steps of these events."""
        return [event["step"] for event in self.events(kind, replica)]


def kill_at_random(job, seed, *, between, victim=None):
    """SIGKILLs a replica, or all, after a step drawn from `between`; the journal's last step."""
    draw = random.Random(seed)
    job.until_step(draw.randint(*between))
    time.sleep(draw.uniform(0, 0.05))
    job.kill(*([victim] if victim else []))
    return job.steps("step")[-1]
