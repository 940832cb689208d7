"""One training of a study: a process of `components.train`, and the scores that it reaches."""

import dataclasses
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Sequence

import optuna
from optuna.trial import TrialState

from common.lifeline import OWNER_PID
from common.storage.files import parsed_json
from components.train.supervision.restart_policy import TIMED_OUT
from pipelines.local.summary import mistakes
from pipelines.tuning.figures import measured
from pipelines.tuning.results import ERROR, FIGURES, METRIC
from trainer.job import done

_FINAL = (2, TIMED_OUT)  # Exit codes that the same training would have again.


@dataclasses.dataclass(kw_only=True)
class Training:
    """A training that has been started.

    Attributes:
      trial: Trial of the study that it belongs to.
      job_dir: Directory of the job.
      log: File that its output is appended to.
      process: Process that trains, or follows a job on Vertex AI.
      is_pruned: Whether it has been told to stop since others are better.
    """

    trial: optuna.Trial
    job_dir: str
    log: pathlib.Path
    process: subprocess.Popen[bytes]
    is_pruned: bool = False

    @classmethod
    def start(
        cls, trial: optuna.Trial, flags: Sequence[str], job_dir: str, log: pathlib.Path
    ) -> "Training":
        """Starts or resumes a training.

        Args:
          trial: Trial of the study.
          flags: Flags of `components.train`, and those of the trainer without `--job-dir`.
          job_dir: Directory of the job.
          log: File that the output is appended to.
        """
        with log.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "components.train", *flags, f"--job-dir={job_dir}"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for this process, which stops all trainings.
                env={**os.environ, OWNER_PID: str(os.getpid())},
            )
        return cls(trial=trial, job_dir=job_dir, log=log, process=process)

    @property
    def _metric(self) -> str:
        return self.trial.study.user_attrs[METRIC]

    def stop(self) -> None:
        """Asks the training to save and end; asked again, it ends at once."""
        self.process.send_signal(signal.SIGTERM)

    def report(self, *, prune: bool) -> None:
        """Reports the newest score to the study.

        Args:
          prune: Whether the study may have the training stop now.

        Raises:
          UserError: If the file of the scores cannot be used.
          ConnectionError: If a store does not answer.
        """
        with parsed_json(os.path.join(self.job_dir, "validation.json")) as scores:
            newest = (scores or {}).get("latest") or {}
        trials = self.trial.study.get_trials(deepcopy=False)
        reported = trials[self.trial.number].intermediate_values
        step, value = newest.get("step", 0), newest.get(self._metric)
        if value is None or step in reported:
            return
        self.trial.report(value, step)
        if prune and not self.is_pruned and self.trial.should_prune():
            self.is_pruned = True
            self.stop()

    def end(self) -> int:
        """Records the result of a training whose process has ended.

        Returns:
          0, or the exit code of the training if it may go on later. Its trial stays open then.

        Raises:
          UserError: If a file of the job cannot be used.
          ConnectionError: If a store does not answer.
        """
        code, tell = self.process.returncode, self.trial.study.tell
        record = done.load(self.job_dir) if code == 0 else None
        if record:
            step = record.exported[0]
            scores = (each for each in record.validation.values() if each and each["step"] == step)
            value = next((score[self._metric] for score in scores), None)
            self.trial.set_user_attr(FIGURES, measured(self.job_dir))
            if value is None:
                self.trial.set_user_attr(ERROR, f"{self._metric} is not finite")
            tell(self.trial, value, TrialState.FAIL if value is None else TrialState.COMPLETE)
        elif self.is_pruned:
            tell(self.trial, state=TrialState.PRUNED)
        elif code in _FINAL:
            output = self.log.read_text(encoding="utf-8", errors="replace")
            reasons = mistakes(output) or [f"training ended with exit code {code}"]
            self.trial.set_user_attr(ERROR, reasons[-1])
            tell(self.trial, state=TrialState.FAIL)
        else:
            return code if code > 0 else 128 - code
        return 0
