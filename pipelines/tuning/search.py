"""A study as it runs: its trials, which Optuna proposes and keeps, and their trainings."""

import dataclasses
import os
import pathlib
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Sequence

import optuna
import yaml
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from common import quiet
from common.errors import UserError, about, unknown
from common.lifeline import OWNER_PID
from common.manifest import Manifest
from common.pages import figure
from common.storage.files import parsed_json, write_text
from components.convert.step import locate, make, parsed_options
from components.train.backends.vertex import VertexOptions
from components.train.supervision.restart_policy import NO_CAPACITY
from components.train.supervision.signals import STOPPING
from pipelines import cloud_options, run
from pipelines.config import Config, Keys
from pipelines.local.summary import shown
from pipelines.tuning import results
from pipelines.tuning.figures import measured
from pipelines.tuning.results import ERROR, FIGURES, METRIC, REPEAT, SPACE
from pipelines.tuning.study_file import Settings, Study
from pipelines.vertex.submission import prepare
from trainer.job import done
from trainer.options import parse

KEYS = Keys(
    options={**run.KEYS.options, **cloud_options.KEYS.options},
    flags={*run.KEYS.flags, *cloud_options.KEYS.flags} - {"runner", "threshold"},
)
# Exit codes of a training that was stopped, or waits for machines, and can go on later.
_RESUMABLE = {NO_CAPACITY, *(128 + number for number in STOPPING)}
_POLL_S = 1.0  # Time between looks at the trainings.
_MOST_FAILURES = 5  # Trials that fail one after the other, after which the study stops.


@dataclasses.dataclass(kw_only=True)
class Training:
    """A training that has been started.

    Attributes:
      trial: Trial of the study that it belongs to.
      job_dir: Directory of the job.
      log: File that its output is appended to.
      process: Process that trains, or follows a job on Vertex AI. After SIGTERM it saves and ends.
      is_pruned: Whether it has been told to stop since others are better.
    """

    trial: optuna.Trial
    job_dir: str
    log: pathlib.Path
    process: subprocess.Popen[bytes]
    is_pruned: bool = False


class Search:
    """Runs the trials of a study in its directory, and writes what they come to."""

    def __init__(
        self, study: Study, directory: pathlib.Path, backend: str, flags: Sequence[str]
    ) -> None:
        """Checks all combinations of settings; reads no data and starts nothing.

        Args:
          study: Content of the study file.
          directory: Directory of the study.
          backend: Name of the back end that trainings run on.
          flags: Further flags of `components.train`.

        Raises:
          UserError: If training would refuse a key or a flag.
        """
        self._file, self._directory, self._backend, self._flags = study, directory, backend, flags
        self._jobs = str(directory)
        self._datasets: set[str] = set()  # Directories of those that are known to be there.
        self._failures = 0  # Trials that have failed since the last one that did not.
        self.best_file = directory / "best.yaml"
        for settings in study.combinations:
            with about(results.text(settings)):
                config = self._config(settings)
                prepare(config) if backend == "vertex" else run.describe(config, reads=False)

    def run(self) -> int:
        """Runs all trials that are not done.

        Writes the results after each trial, and at the end `best.yaml` with the keys of the best
        one. It must be called from the main thread.

        Returns:
          0; 128 + n if signal n stopped a training; or 75 if Vertex AI has no machines.

        Raises:
          UserError: If the directory has another study, the dataset cannot be converted, several
            trials fail one after the other, no trial succeeds, or a file of a trial cannot be used.
          ConnectionError: If a store does not answer.
          SystemExit: After SIGTERM. As after Ctrl-C, all trainings have saved then; after a second
            signal they end at once.
        """
        print(self._file.asks)
        # As Ctrl-C does, SIGTERM raises an error here, so that all trainings save and end.
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
        self._open()
        trainings: list[Training] = []
        try:
            while True:
                while len(trainings) < self._file.parallel and (trial := self._next()):
                    trainings.append(self._start(trial))
                if not trainings:
                    break
                time.sleep(_POLL_S)
                for training in [*trainings]:
                    self._report(training)
                    if training.process.poll() is not None:
                        trainings.remove(training)
                        if not self._end(training):
                            return training.process.returncode
        finally:
            for training in trainings:
                training.process.terminate()
            for training in trainings:
                training.process.wait()
        self._conclude()
        return 0

    def _config(self, settings: Settings, repeat: int = 0) -> Config:
        """Returns the keys of a run that trains with these settings.

        Raises:
          UserError: If a key or a value is not allowed.
        """
        return KEYS.model.read(self._file.keys(settings, repeat, KEYS.model.model_fields))

    def _plan(self, config: Config) -> tuple[str, list[str], list[str]]:
        """Plans a training, and converts its dataset unless it is there.

        Returns:
          The cluster as JSON; flags of `components.train` for the back end; and those of the
          trainer, without `--job-dir`.

        Raises:
          UserError: If a key or the source is wrong.
          ConnectionError: If a store does not answer.
        """
        launcher = [f"--backend={self._backend}", *self._flags]
        if self._backend == "vertex":
            submission = prepare(config)
            values = submission.values
            data = locate(values["dataset_dir"], values["convert_args"], values["schema"])
            launcher += VertexOptions.of(
                config, region=config.location, **vars(submission.settings)
            ).as_flags()
        else:
            values = run.describe(config)["arguments"]
            data = values["dataset_dir"]
            if self._backend == "docker" and config.image:
                launcher.append(f"--image={config.image}")
        if data not in self._datasets:
            with parsed_options(values["convert_args"], values["schema"], data) as options:
                make(options, os.devnull)
            self._datasets.add(data)
        return values["cluster"], launcher, [f"--data-dir={data}", *values["trainer_args"]]

    def _open(self) -> None:
        """Opens the study in the directory's `study.log`, or begins it.

        Converts the dataset unless it is there.

        Raises:
          UserError: If the directory has another study, the dataset cannot be converted or has no
            validation split, there is no such metric, or nothing is evaluated to prune by.
          ConnectionError: If a store does not answer.
        """
        first = self._config(self._file.combinations[0])
        if self._backend == "vertex":
            self._jobs = f"{first.bucket}/studies/{self._directory.name}"
        cluster, _, trainer = self._plan(first)
        flags = parse([*trainer, "--job-dir=-"])
        if self._file.prune and not flags.eval_every_steps and '"evaluator"' not in cluster:
            raise UserError("prune: give eval_every_steps, or a cluster with an evaluator")
        manifest = Manifest.load(flags.data_dir)
        manifest.split("validation")
        with quiet.without_advice():
            quiet.import_keras()
            task = flags.on(manifest).builder(manifest).task
        names = (*task.metric_names, "loss")
        metric = self._file.metric or task.ranked_by(names)
        if metric not in names:
            raise unknown("metric", metric, names)
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        # Each poll reports the newest score, and Optuna warns of one that it has already.
        warnings.filterwarnings("ignore", ".*already reported")
        # Without another pruner, trials are stopped that are worse than the median of the others.
        self._study = optuna.create_study(
            study_name=self._directory.name,
            storage=JournalStorage(JournalFileBackend(str(self._directory / "study.log"))),
            direction="minimize" if metric in task.lower_is_better else "maximize",
            load_if_exists=True,
        )
        is_tpe = self._file.sampler == "tpe"  # Of a grid, nothing is drawn.
        sampler = optuna.samplers.TPESampler if is_tpe else optuna.samplers.RandomSampler
        self._study.sampler = sampler(seed=len(self._study.trials))
        # What may not change once a study has begun.
        fixed = {
            "sampler": self._file.sampler,
            SPACE: {name: str(each) for name, each in self._file.distributions.items()},
            "cases": self._file.cases,
            METRIC: metric,
            "run": [cluster, *trainer],
        }
        for name, value in fixed.items():
            if self._study.user_attrs.get(name, value) != value:
                raise UserError(
                    f"{self._directory} has a study with another {name}; give --output for this one"
                )
            self._study.set_user_attr(name, value)
        self._metric = metric
        self._interrupted = [
            trial for trial in results.begun(self._study) if trial.state == TrialState.RUNNING
        ]

    def _next(self) -> optuna.Trial | None:
        """Returns a trial to train, first those that were interrupted; None if there is none.

        Any other is new, and is added to the study.
        """
        if self._interrupted:
            return optuna.Trial(self._study, self._interrupted.pop(0)._trial_id)
        trials = results.begun(self._study)
        begun = [(trial.params, trial.user_attrs[REPEAT]) for trial in trials]
        if self._file.sampler == "grid":
            wanted = self._file.combinations
        else:
            wanted = [trial.params for trial in trials if trial.state == TrialState.COMPLETE]
        # All are trained before any is repeated: a machine that becomes slower is so for all.
        for repeat in range(self._file.repeats):
            for settings in wanted:
                if (settings, repeat) not in begun:
                    new = optuna.create_trial(
                        state=TrialState.RUNNING,
                        params=settings,
                        distributions=self._file.distributions,
                        user_attrs={REPEAT: repeat},
                    )
                    self._study.add_trial(new)
                    return optuna.Trial(self._study, self._study.trials[-1]._trial_id)
        if sum(not repeat for _, repeat in begun) >= (self._file.trials or 0):
            return None
        trial = self._study.ask(self._file.distributions)
        trial.set_user_attr(REPEAT, 0)
        return trial

    def _start(self, trial: optuna.Trial) -> Training:
        """Starts or resumes the training of a trial.

        Writes `trial-<number>.cluster.json`; the training's output goes to `trial-<number>.log`.

        Raises:
          UserError: If a key or the source is wrong.
          ConnectionError: If a store does not answer.
          OSError: If a file cannot be written.
        """
        settings, repeat = trial.params, trial.user_attrs[REPEAT]
        again = f", repeat {repeat}" if repeat else ""
        print(f"trial {trial.number}: {results.text(settings)}{again}")
        cluster, launcher, trainer = self._plan(self._config(settings, repeat))
        name = f"trial-{trial.number:03}"
        file = self._directory / f"{name}.cluster.json"
        write_text(file, cluster)
        job_dir, log = f"{self._jobs}/{name}", self._directory / f"{name}.log"
        flags = [f"--cluster={file}", *launcher, "--", *trainer, f"--job-dir={job_dir}"]
        with log.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "components.train", *flags],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for this process, which stops all trainings.
                env={**os.environ, OWNER_PID: str(os.getpid())},
            )
        return Training(trial=trial, job_dir=job_dir, log=log, process=process)

    def _report(self, training: Training) -> None:
        """Reports the newest score in a training's `validation.json` to the study.

        If the study prunes and the score is bad, asks the training to stop.

        Raises:
          UserError: If the file of the scores cannot be used.
          ConnectionError: If a store does not answer.
        """
        with parsed_json(os.path.join(training.job_dir, "validation.json")) as scores:
            latest = scores["latest"] if scores else {}
        if (value := latest.get(self._metric)) is not None:
            training.trial.report(value, latest["step"])
            if self._file.prune and not training.is_pruned and training.trial.should_prune():
                training.is_pruned = True
                training.process.terminate()

    def _end(self, training: Training) -> bool:
        """Records the result of a training that has ended, and writes the results so far.

        Returns:
          Whether its trial is done; otherwise the training can go on later.

        Raises:
          UserError: If five trials have failed one after the other, or a file of the job cannot be
            used.
          ConnectionError: If a store does not answer.
        """
        trial, code, value = training.trial, training.process.returncode, None
        if record := done.load(training.job_dir):
            scores = {score["step"]: score for score in record.validation.values()}
            value = scores.get(record.exported[0], {}).get(self._metric)
            trial.set_user_attr(FIGURES, measured(training.job_dir, record))
        elif code in _RESUMABLE and not training.is_pruned:
            return False
        state = TrialState.COMPLETE
        if value is None:
            state = TrialState.PRUNED if training.is_pruned else TrialState.FAIL
        if state == TrialState.FAIL:
            lines = training.log.read_text(encoding="utf-8", errors="replace").splitlines()
            # A training whose score is not finite has ended with exit code 0.
            trial.set_user_attr(
                ERROR, f"{''.join(lines[-1:]).split(' | ')[-1].strip()} (exit code {code})"
            )
        ended = self._study.tell(trial, value, state)
        outcome = ended.user_attrs.get(ERROR, f"{self._metric} {figure(ended.value)}")
        print(f"trial {trial.number}: {state.name.lower()}, {outcome}")
        results.write(self._study, self._file.asks, self._directory)
        self._failures = self._failures + 1 if state == TrialState.FAIL else 0
        if self._failures == _MOST_FAILURES:
            raise UserError(
                f"{_MOST_FAILURES} trials failed one after the other; see {shown(training.log)}; "
                "the same command goes on with the next trial"
            )
        return True

    def _conclude(self) -> None:
        """Writes `best.yaml`, with the keys of the best trial, and prints where things are.

        Raises:
          UserError: If no trial has succeeded.
        """
        best = results.write(self._study, self._file.asks, self._directory)
        if not best:
            raise UserError(f"no trial has succeeded; see the logs in {shown(self._directory)}")
        command = cloud_options if self._backend == "vertex" else run
        keys = self._config(best.params, best.user_attrs[REPEAT]).model_dump(
            mode="json", include={*command.KEYS.model.model_fields}, exclude_unset=True
        )
        keys["job_dir"] = f"{self._jobs}/trial-{best.number:03}"
        write_text(self.best_file, yaml.safe_dump(keys))
        settings = results.text(best.params)
        print(f"best: trial {best.number}, {settings}: {self._metric} {figure(best.value)}")
        print(f"page: {shown(self._directory / results.PAGE)}")
