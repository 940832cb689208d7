"""The loop around the steps: when to save, when to evaluate, when to stop."""

import dataclasses
import math
from collections.abc import Callable

from common.errors import UserError
from trainer.evaluation import Validator
from trainer.job.checkpoints import Checkpoints
from trainer.job.state import State
from trainer.meter import Meter
from trainer.options import Options
from trainer.steps import AsyncSteps, SyncSteps


@dataclasses.dataclass(kw_only=True)
class Loop:
    """Drives the steps of a job from wherever it is to its last step."""

    opts: Options
    last_step: int
    steps: SyncSteps | AsyncSteps
    state: State
    checkpoints: Checkpoints
    validator: Validator | None  # of a replica that evaluates
    meter: Meter
    wants_to_stop: Callable[[], bool]  # whether this process was told to; all replicas then agree on the step

    def run(self, step: int) -> tuple[int, bool]:
        """Trains on from `step`. Returns the step it ends at, whose state is saved, and whether it was not told to stop."""
        first_step = step
        leaving, enough = False, self._enough(step)
        while step < self.last_step and not (leaving or enough):
            stop = self.wants_to_stop()
            window = self.steps.run(step, self._until(step), stop, stop or self.checkpoints.late)
            step += window.steps
            self.meter.add(step, window)
            if not math.isfinite(loss := window.sums[0]):
                raise UserError(f"the loss is {loss} at step {step}: training diverged; lower --learning-rate")
            if getattr(self.state.optimizer, "hopeless", False):
                raise UserError(
                    f"gradients overflow float16 at step {step}, whatever the scale of the loss; use --precision bfloat16 or "
                    "float32"
                )
            leaving = window.stop and self.steps.idle
            ends, every = leaving or step >= self.last_step, self.opts.eval_every_steps
            if self.steps.idle and not ends and every and step % every == 0:
                if self.validator:
                    self._evaluate(step)
                ends = enough = self._enough(step)
            if ends or (self.steps.idle and self.checkpoints.due(step)):
                self.checkpoints.save(step, last=ends)
        self.checkpoints.wait()
        # Last, when the state is safe, and also if an earlier attempt trained to the end and got no further.
        there = self.validator and self.validator.scores.latest_step == step
        scored = not self.validator or (there and (enough or first_step == step))
        return step, not leaving and (scored or self._evaluate(step))

    def _enough(self, step: int) -> bool:
        """Whether the score has not risen for as many evaluations as there is patience for. All replicas must ask."""
        if not (patience := self.opts.patience):
            return False
        tells = bool(self.validator) and self.validator.tells
        enough = self.steps.agree(tells and self.validator.scores.without_better(step) >= patience)
        if enough and tells:
            print(f"step {step}  no better score in {patience} evaluations; training ends early", flush=True)
        return enough

    def _until(self, step: int) -> int:
        """The next step at which something may be to be done, the same on all replicas: they make equal calls."""
        every = self.opts.eval_every_steps or self.last_step
        return min(self.last_step, step - step % every + every, self.checkpoints.next_step(step))

    def _evaluate(self, step: int) -> bool:
        """Scores the present state. Returns False if it was told to stop meanwhile."""
        self.checkpoints.wait()  # the state's copies are the save's until it is written
        self.state.take(step)
        return self.validator.evaluate(self.state, self.wants_to_stop)
