"""The loop around the steps: when to save, when to evaluate, when to stop."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable

from trainer.checkpoint import Checkpoints, Saved
from trainer.errors import UserError
from trainer.journal import Journal
from trainer.meter import Meter
from trainer.options import Options
from trainer.state import State
from trainer.steps import AsyncSteps, SyncSteps
from trainer.validation import Scores, Validator


@dataclasses.dataclass(kw_only=True)
class Loop:
    """Drives the steps of a job from wherever it is to its last step.

    Attributes:
      checkpoints: Of the chief; None elsewhere.
      validator: Of the replica that evaluates; None elsewhere.
      wants_to_stop: Whether this process was told to stop; all replicas then agree on the step.
    """

    opts: Options
    last_step: int
    steps: SyncSteps | AsyncSteps
    state: State
    checkpoints: Checkpoints | None
    validator: Validator | None
    scores: Scores
    meter: Meter
    journal: Journal
    wants_to_stop: Callable[[], bool]

    def run(self, step: int) -> int:
        """Trains on from `step`; the state of the step it ends at is saved. Returns that step."""
        saved, saved_at = step, time.monotonic()
        self.journal.status("training", step)
        while step < self.last_step:
            window = self.steps.run(step, self._until(step), self.wants_to_stop())
            step += window.steps
            self.meter.add(step, window)
            if not math.isfinite(window.loss):
                raise UserError(f"the loss is {window.loss} at step {step}: training diverged; lower --learning-rate")
            at_end = step == self.last_step
            leaving = window.stop and self.steps.idle
            if self.validator and (at_end or _due(step, self.opts.eval_every_steps)) and self.steps.idle:
                self._evaluate(step)
            late = 0 < self.opts.checkpoint_secs <= time.monotonic() - saved_at and self.steps.idle
            if step != saved and (at_end or leaving or late or _due(step, self.opts.checkpoint_num_steps)):
                self._save(step)
                saved, saved_at = step, time.monotonic()
            if leaving and not at_end:
                self.journal.event("preempted", step)
                break
        self._finish_save()
        self.journal.flush()
        return step

    def _until(self, step: int) -> int:
        """The next step at which something is to be done."""
        intervals = [self.opts.checkpoint_num_steps, self.opts.eval_every_steps if self.validator else 0]
        return min([self.last_step, *(step - step % n + n for n in intervals if n)])

    def _save(self, step: int) -> None:
        if self.checkpoints:
            self.journal.status("saving", step)
            self._told(self.checkpoints.save(step))

    def _finish_save(self) -> None:
        if self.checkpoints:
            self._told(self.checkpoints.wait())

    def _told(self, saved: Saved | None) -> None:
        """Notes a save when it is complete: until then there is no checkpoint."""
        if saved:
            seconds, waited_s = round(saved.seconds, 4), round(saved.waited_s, 4)
            self.journal.event("checkpoint", saved.step, seconds=seconds, waited_s=waited_s)
            self.journal.flush()

    def _evaluate(self, step: int) -> None:
        self.journal.status("evaluating", step)
        start = time.perf_counter()
        self._finish_save()  # the state's copies are the save's until it is written
        self.state.take(step)
        score = self.validator.score(self.state.weights(), self.wants_to_stop)
        if score is None:
            return
        best = self.scores.add(step, score, self.state)
        self.journal.event("evaluation", step, **score, best=best, seconds=round(time.perf_counter() - start, 3))
        print(f"step {step}  validation loss {score['loss']:.4f}  accuracy {score['accuracy']:.4f}", flush=True)


def _due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0
