"""What a replica that trains does, from its strategy to what it leaves behind."""

import contextlib
import os
import time
from collections.abc import Callable

import keras
import tensorflow as tf

from common.errors import UserError
from common.manifest import Manifest
from common.trained_on import FILE as RECORDS
from common.trained_on import TrainedOn
from trainer import learning, model_check, warm_start
from trainer.cluster import exit_codes, rendezvous, strategy
from trainer.cluster.control_channel import DONE, LEFT, Line
from trainer.cluster.member import Member
from trainer.cluster.shutdown import Stop, StopMark
from trainer.data import example_weights, records
from trainer.data.placement import Choice
from trainer.data.shards import content_hashes
from trainer.evaluation import SPLIT, Scores, Validator
from trainer.evaluator import await_evaluator, has_evaluator
from trainer.export import export
from trainer.job import done, identity
from trainer.job.checkpoints import Checkpoints
from trainer.job.journal import Journal, last
from trainer.job.state import State
from trainer.loop import Loop
from trainer.meter import Meter
from trainer.models import registry
from trainer.nn import tables
from trainer.nn.layers import exchanges, synchronize
from trainer.options import Options
from trainer.steps import AsyncSteps, SyncSteps, TrainStep


class Training:
    """The part of one replica."""

    def __init__(
        self, opts: Options, member: Member, manifest: Manifest, place: Choice, journal: Journal, stop: Stop, line: Line
    ) -> None:
        self._opts, self._member, self._manifest, self._place = opts, member, manifest, place
        self._journal, self._stop, self._line, self._mark = journal, stop, line, StopMark(opts.job_dir, line)
        self._asynchronous, self._chief = opts.strategy == "parameter_server", member.is_chief
        judged = manifest.splits[SPLIT].examples > 0
        self._evaluator = judged and has_evaluator()
        # The side-car evaluates where there is one; else all who step together do, or the chief of the others.
        self._validates = judged and not self._evaluator
        self._started = time.time()

    def run(self) -> int:
        """Trains, and as the chief exports what was learnt. Returns the exit code."""
        if self._chief:
            self._mark.clear()  # a mark from an earlier attempt asks nothing of this one
            self._mark.watch()
        else:
            # The chief may export for long, and the others only wait for it.
            self._stop.call(lambda: self._mark.set(self._member.name))
        # Until the first step there is nothing to save; but synchronous replicas leave together, or the others hang.
        alone = self._asynchronous or not self._member.addresses
        with self._stop.at_once() if alone else contextlib.nullcontext():
            self._prepare()
        self._journal.status("training", self._first_step)
        reached, trained = self._loop.run(self._first_step)
        if trained:
            with self._stop.at_once(self._leave):  # all is saved: what is interrupted now, a resume does again
                if self._finish(reached):
                    return 0
        self._journal.event("preempted", reached)
        self._leave()
        if self._chief:
            print(f"told to stop; saved at step {reached}", flush=True)
        self._part(lambda: reached in self._checkpoints.steps())
        return exit_codes.saved()

    def _prepare(self) -> None:
        """Makes all that the loop needs, as far as the job has come."""
        opts = self._opts
        distribution = strategy.create(
            opts.strategy,
            self._member,
            num_gpus=opts.num_gpus,
            logical_cpus=opts.logical_cpus,
            all_reduce=opts.all_reduce,
        )
        self._build = opts.builder(self._manifest)
        extent = self._extent = self._find_extent(1 if self._asynchronous else distribution.num_replicas_in_sync)
        if self._chief and not self._asynchronous:
            model_check.run(self._build, opts, self._manifest)
        with distribution.scope():
            model = self._build()
            self._settle(model)
            optimizer = learning.optimizer(opts, model, self._manifest, extent)
        state, validator = State(model, optimizer), None
        if self._validates:
            together = None if self._asynchronous else distribution
            validator = Validator(
                self._build, self._manifest, opts, self._journal, together=together, tells=self._chief
            )
        self._checkpoints = Checkpoints(opts, state, self._journal if self._chief else None)
        self._first_step = self._restore(model)
        if self._member.addresses and not self._asynchronous:
            self._compare_starts(distribution, tables.digest(model))
        self._loop = Loop(
            opts=opts,
            last_step=extent.last_step,
            steps=self._steps(distribution, state),
            state=state,
            checkpoints=self._checkpoints,
            validator=validator,
            meter=Meter(extent, self._build.task, self._journal, optimizer, self._chief),
            wants_to_stop=lambda: self._stop.requested or (self._chief and self._mark.is_set()),
        )
        if self._chief:
            self._announce(model.count_params())

    def _settle(self, model: keras.Model) -> None:
        """Holds the model against that of the job's first start, and makes it right on several replicas."""
        opts, network = self._opts, tables.digest(model)
        # With all that follows from the first start: a store takes one write a second to an object.
        if identity.settle(opts.job_dir, {**self._begun, "network": network}, write=self._chief)["network"] != network:
            raise UserError(
                f"--model {opts.model} has other weights, vocabularies or statistics than when {opts.job_dir} began, or its "
                "weights in another order; use what it was, or another --job-dir"
            )
        if self._extent.replicas > 1 and (layers := synchronize(model)) and self._chief:
            print(
                f"--model {opts.model}: {layers} layers of keras.layers.BatchNormalization go by the whole batch here, as "
                "with synchronized=True",
                flush=True,
            )
        if self._extent.replicas > 1 and opts.jit_compile and exchanges(model):
            raise UserError(
                f"--jit-compile: the batch normalisation of --model {opts.model} exchanges sums with other replicas, which XLA "
                "does not compile; leave it out, or train on one device"
            )

    def _find_extent(self, replicas: int) -> learning.Extent:
        opts, examples = self._opts, self._manifest.split("train").examples
        batch, last_step = opts.global_batch_size(replicas), opts.last_step(examples, replicas)
        if batch < replicas:
            raise UserError(
                f"--batch-size {batch} leaves some of {replicas} replicas without an example; use {replicas} or more"
            )
        # A job that is asked for more steps later keeps the schedule that it began with.
        now = {"batch_size": batch, "horizon_steps": opts.horizon_steps or last_step}
        now["settings"] = learning.settings(opts, batch_size=batch, horizon_steps=now["horizon_steps"])
        now["replicas"] = {role: len(them) for role, them in self._member.addresses.items()} or {"chief": 1}
        now["arguments"] = dict(self._manifest.arguments)  # for those that begin with what is learnt here
        self._begun, settled = now, identity.settle(opts.job_dir, now, write=False)
        if (before := settled["batch_size"]) != batch:
            raise UserError(
                f"--per-replica-batch-size {opts.per_replica_batch_size} on {replicas} replicas makes {batch} examples a "
                f"step, and this job began with {before}; use as many replicas as then, or another --job-dir"
            )
        identity.check_settings(opts.job_dir, now["settings"])
        return learning.Extent(
            replicas=replicas, batch=batch, examples=examples, last_step=last_step, horizon=settled["horizon_steps"]
        )

    def _restore(self, model: keras.Model) -> int:
        first_step, opts = self._checkpoints.restore(), self._opts
        if not first_step and (record := done.load(opts.job_dir)):
            raise UserError(
                f"{opts.job_dir} was done at step {record.step}, and its checkpoints are gone; put them back, or use "
                "another --job-dir"
            )
        told = {}
        if opts.init_from and not first_step:
            warm_start.check_unseen(opts.init_from, self._manifest)
            told = {"init_from": warm_start.take(opts.init_from, model)}
            if self._chief:
                print(f"--init-from {opts.init_from}: {told['init_from']}", flush=True)
        if self._chief:
            self._note_records()
        self._journal.event(
            "resume" if first_step else "start",
            first_step,
            data_dir=opts.data_dir,
            fingerprint=self._manifest.fingerprint,
            options=opts.identity(),
            **told,
        )
        return first_step

    def _compare_starts(self, distribution: tf.distribute.Strategy, network: str) -> None:
        """Ends a job whose replicas have read different checkpoints, or have built different models."""
        names = [*self._member.everyone]
        mine = [[names.index(self._member.name), self._first_step, int(network[:8], 16)]]
        gathered = distribution.gather(distribution.run(tf.function(lambda: tf.constant(mine, tf.int64))), axis=0)
        starts = {names[i]: f"step {step} of model {model:08x}" for i, step, model in gathered.numpy()}
        if len({*starts.values()}) > 1:
            rendezvous.part(self._member, self._line, completed=lambda: True)  # the others may still gather
            raise OSError(
                f"replicas would start differently ({', '.join(f'{name}: {start}' for name, start in starts.items())}); give "
                f"all the same program, and a --job-dir of which they read the same files: {self._opts.job_dir}"
            )

    def _note_records(self) -> None:
        """Writes, once a job, which records it learns from; `--init-from` may be gone when it exports."""
        opts, path = self._opts, os.path.join(self._opts.job_dir, RECORDS)
        self._learnt = TrainedOn.load(path)
        if self._learnt is None:
            ours = TrainedOn.of(self._manifest, content_hashes(self._manifest, opts.data_dir, "train"))
            self._learnt = ours.and_before(warm_start.learnt_from(opts.init_from) if opts.init_from else None)
            self._learnt.save(path)

    def _steps(self, distribution: tf.distribute.Strategy, state: State) -> SyncSteps | AsyncSteps:
        opts, batch = self._opts, self._extent.batch
        weight_decay, decayed = learning.decay(opts, state.model)
        step = TrainStep(
            model=state.model,
            optimizer=state.optimizer,
            task=self._build.task,
            label=self._manifest.label,
            global_batch=batch,
            seed=opts.seed,
            weight_decay=weight_decay,
            decayed=decayed,
            jit_compile=opts.jit_compile,
        )
        reader = records.open_reader(
            self._place,
            self._manifest,
            global_batch=batch,
            seed=opts.seed,
            prepare=example_weights.weighed(
                self._build.prepare, self._manifest, classes=opts.class_weights, column=opts.weight_column
            ),
            augment=opts.augment or registry.default(opts.model, "AUGMENT"),
        )
        if self._asynchronous:
            strategy.count_exactly(state.optimizer)
            coordinator = tf.distribute.coordinator.ClusterCoordinator(distribution)
            return AsyncSteps(coordinator, step, reader, workers=len(self._member.addresses["worker"]))
        return SyncSteps(distribution, step, reader, self._chief, self._first_step)

    def _announce(self, parameters: int) -> None:
        opts, extent = self._opts, self._extent
        replicas = len(self._member.addresses["worker"]) if self._asynchronous else extent.replicas
        print(
            f"{opts.model} on {self._manifest.name}: {extent.examples} examples, batch {extent.batch}, "
            f"{parameters} parameters; {opts.strategy}, training replicas: {replicas}; "
            f"from step {self._first_step} to {extent.last_step}",
            flush=True,
        )
        if extent.horizon < extent.last_step and learning.falls(opts):
            print(
                f"the learning rate is 0 from step {extent.horizon} on, where this job's schedule ends; for "
                f"{extent.last_step} steps of learning begin a job with --horizon-steps {extent.last_step}",
                flush=True,
            )

    def _leave(self) -> None:
        """As the chief who was told to stop: the servers wait until what they asked for is done, the others are told."""
        if not self._chief:
            return
        self._line.tell(LEFT)
        if self._asynchronous or not self._member.addresses:
            self._mark.clear()
        else:
            self._mark.leave()

    def _finish(self, reached: int) -> bool:
        """Exports, or waits until the chief has. Returns False if the chief was told to stop before."""
        journal, steps = self._journal, reached - self._first_step
        if self._chief:
            self._export(reached)
        else:
            self._part(lambda: self._mark.left or self._is_done(reached))
            if not (self._line.hears(DONE) or self._is_done(reached)):
                return False
        journal.event("done", reached, steps=steps)
        journal.status("done", reached)
        if self._chief:
            self._part(lambda: True)
        return True

    def _export(self, reached: int) -> None:
        opts, journal, loop = self._opts, self._journal, self._loop
        scores = Scores(opts.job_dir, self._build.task)
        if self._evaluator:
            await_evaluator(scores, reached, journal)
        exported = reached
        if opts.export == "best" and "best" in scores.load():
            exported = scores.restore_best(loop.state)
        else:
            loop.state.take(reached)
            if opts.export == "best":
                print(f"--export best: no evaluation had a finite score; step {reached} is exported", flush=True)
        journal.status("exporting", reached)
        export(loop.state.weights(), self._build, self._manifest, os.path.join(opts.job_dir, "model"), self._learnt)
        journal.event("export", reached, exported_step=exported)
        # An attempt that only had to export has not seen a step.
        final = loop.meter.final() if reached > self._first_step else last(opts.job_dir, self._member.name, "step")
        done.Done(
            step=reached,
            epochs=reached * self._extent.batch / self._extent.examples,
            exported_step=exported,
            seconds=round(time.time() - self._started, 2),
            validation=scores.load(),
            stopped_early=opts.patience if reached < self._extent.last_step else None,
            loss=final.get("loss"),
            metrics={name: final.get(name) for name in self._build.task.metric_names},
            examples_per_s=final.get("examples_per_s"),
        ).save(opts.job_dir)
        self._line.tell(DONE)

    def _is_done(self, step: int) -> bool:
        record = done.load(self._opts.job_dir)
        return record is not None and record.step >= step

    def _part(self, completed: Callable[[], bool]) -> None:
        """Leaves when the chief has done what the others wait for; asynchronous workers serve until they are told."""
        if not self._asynchronous:
            rendezvous.part(self._member, self._line, completed=completed, every_s=self._mark.look_s)
