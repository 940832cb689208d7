"""The loop around the steps: when to save, when to evaluate, when to stop."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

from trainer.base.errors import UserError
from trainer.evaluator import evaluate
from trainer.job_dir.checkpoint import Checkpoints, Saved
from trainer.job_dir.journal import Journal
from trainer.job_dir.state import State
from trainer.meter import Meter
from trainer.options import Options
from trainer.steps import AsyncSteps, SyncSteps
from trainer.validation import Scores, Validator


@dataclasses.dataclass(kw_only=True)
class Loop:
    """Drives the steps of a job from wherever it is to its last step.

    Attributes:
      validator: Of the replica that evaluates; None elsewhere.
      wants_to_stop: Whether this process was told to stop; all replicas then agree on the step.
    """

    opts: Options
    last_step: int
    steps: SyncSteps | AsyncSteps
    state: State
    checkpoints: Checkpoints
    validator: Validator | None
    scores: Scores
    meter: Meter
    journal: Journal
    wants_to_stop: Callable[[], bool]

    def run(self, step: int) -> tuple[int, bool]:
        """Trains on from `step`.

        Returns:
          The step it ends at, whose state is saved, and whether all that was to be done is done: False if it was told
          to stop.
        """
        first_step = step
        self.journal.status("training", step)
        leaving = False
        while step < self.last_step and not leaving:
            stop = self.wants_to_stop()
            window = self.steps.run(step, self._until(step), stop, stop or self.checkpoints.late)
            step += window.steps
            self.meter.add(step, window)
            if not math.isfinite(window.loss):
                raise UserError(f"the loss is {window.loss} at step {step}: training diverged; lower --learning-rate")
            leaving = window.stop and self.steps.idle
            at_end = step >= self.last_step
            if not (leaving or at_end) and _due(step, self.opts.eval_every_steps) and self.steps.idle:
                self._evaluate(step)
            if at_end or leaving or (self.steps.idle and self.checkpoints.due(step)):
                self.journal.status("saving", step)
                self._told(self.checkpoints.save(step))
        self._told(self.checkpoints.wait())
        # Last, when the state is safe, and also if an earlier attempt trained to the end and got no further.
        scored = first_step == step == self.scores.latest_step
        finished = not leaving and (scored or self._evaluate(step))
        if not finished:
            self.journal.event("preempted", step)
        self.journal.flush()
        return step, finished

    def _until(self, step: int) -> int:
        """The next step at which something may be to be done, the same on all replicas: they make equal calls."""
        every = self.opts.eval_every_steps or self.last_step
        return min(self.last_step, step - step % every + every, self.checkpoints.next_step(step))

    def _told(self, saved: Saved | None) -> None:
        """Notes a save when it is complete: until then there is no checkpoint."""
        if saved:
            seconds, waited_s = round(saved.seconds, 4), round(saved.waited_s, 4)
            self.journal.event("checkpoint", saved.step, seconds=seconds, waited_s=waited_s)
            self.journal.flush()

    def _evaluate(self, step: int) -> bool:
        """Scores the present state. Returns False if it was told to stop meanwhile."""
        if not self.validator:
            return True
        self._told(self.checkpoints.wait())  # the state's copies are the save's until it is written
        self.state.take(step)
        means = {"validator": self.validator, "scores": self.scores, "journal": self.journal}
        return evaluate(step, self.state, **means, interrupted=self.wants_to_stop)


def _due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0
