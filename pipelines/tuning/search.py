"""A study as it runs: its trials, which Optuna proposes and keeps, and their trainings."""

import pathlib
import select
from collections.abc import Sequence

import optuna
import yaml
from optuna.distributions import distribution_to_json
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from common import quiet
from common.cli import as_list
from common.errors import UserError, about, unknown
from common.manifest import Manifest
from common.pages import figure
from common.storage.files import write_text
from common.storage.storage import is_remote
from components.convert.output import PAGE as DATASET_PAGE
from components.convert.step import locate, make, parsed_options
from components.train.backends.program import trainer_flags
from components.train.backends.vertex import VertexOptions
from components.train.cluster.cluster_file import Cluster
from components.train.cluster.lookup import load_cluster
from components.train.supervision.signals import received, signal_socket
from pipelines import cloud_options, run
from pipelines.arguments import DEFAULT_CLUSTER, pipeline_arguments
from pipelines.config import Config, Keys
from pipelines.local.summary import shown
from pipelines.tuning import results
from pipelines.tuning.results import ERROR, METRIC, REPEAT, SETTINGS
from pipelines.tuning.study_file import Settings, Study
from pipelines.tuning.training import Training
from pipelines.vertex.submission import prepare
from trainer.options import parse

KEYS = Keys(
    options={**run.KEYS.options, **cloud_options.KEYS.options},
    flags={*run.KEYS.flags, *cloud_options.KEYS.flags} - {"runner", "threshold"},
)
_POLL_S, _POLL_IN_STORE_S = 0.5, 5.0
_JOB = "trial-{:03}"  # Name of a trial's job directory and files.
_FRUITLESS = 3  # Trials that fail while none succeeds, after which the study ends.
_LAST_LINES = 12
_SAMPLERS = {
    "grid": optuna.samplers.RandomSampler,  # All of a grid's trials are given, and none is drawn.
    "random": optuna.samplers.RandomSampler,
    "tpe": optuna.samplers.TPESampler,
}


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
        self.best_file = directory / "best.yaml"
        for settings in study.combinations:
            with about(results.text(settings)):
                config = self._config(settings)
                if backend == "vertex":
                    prepare(config)
                else:
                    own_flags = as_list(config.trainer_flags)
                    cluster = load_cluster(config.cluster or DEFAULT_CLUSTER, own_flags)
                    pipeline_arguments(config, cluster, as_list(config.source))

    def run(self) -> int:
        """Runs all trials that are not done.

        Returns:
          0; 128 + n after signal n; or the exit code of a training that failed for another reason
          than its settings.

        Raises:
          UserError: If the directory has another study, the dataset cannot be converted, no trial
            succeeds, or a file of a trial cannot be used.
          ConnectionError: If a store does not answer.
        """
        print(self._file.asks, flush=True)
        self._open()
        trainings: list[Training] = []
        code, poll_s = 0, _POLL_IN_STORE_S if is_remote(self._jobs) else _POLL_S
        try:
            with signal_socket() as signals:
                while True:
                    while not code and len(trainings) < self._file.parallel:
                        if not (trial := self._next()):
                            break
                        trainings.append(self._start(trial))
                    if not trainings:
                        break
                    if select.select([signals], [], [], poll_s)[0] and (n := received(signals)):
                        code = 128 + n[0]
                        for training in trainings:
                            training.stop()
                    for training in [*trainings]:
                        training.report(prune=self._file.prune and not code)
                        if training.process.poll() is not None:
                            trainings.remove(training)
                            if failed := self._end(training):
                                code = code or failed
                                for other in trainings:
                                    other.stop()
        finally:  # After an error of this process.
            for training in trainings:
                training.stop()
            for training in trainings:
                training.process.wait()
        if not code:
            self._conclude()
        return code

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
            settings = vars(submission.settings)
            launcher += VertexOptions.of(config, region=config.location, **settings).as_flags()
        else:
            values = run.describe(config)["arguments"]
            data = values["dataset_dir"]
            if self._backend == "docker" and config.image:
                launcher.append(f"--image={config.image}")
        if data not in self._datasets:
            page = str(self._directory / DATASET_PAGE)
            with parsed_options(values["convert_args"], values["schema"], data) as options:
                make(options, page)
            self._datasets.add(data)
        trainer = trainer_flags(Cluster.from_json(values["cluster"]), values["trainer_args"])
        return values["cluster"], launcher, [f"--data-dir={data}", *trainer]

    def _open(self) -> None:
        """Opens the study of the directory, or begins it.

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
        scores = dict.fromkeys((*task.metric_names, "loss"), 0.0)
        metric = self._file.metric or task.ranked_by(scores)
        if metric not in scores:
            raise unknown("metric", metric, scores)
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._study = optuna.create_study(
            study_name=self._directory.name,
            storage=JournalStorage(JournalFileBackend(str(self._directory / "study.log"))),
            direction="minimize" if metric in task.lower_is_better else "maximize",
            pruner=optuna.pruners.MedianPruner(),
            load_if_exists=True,
        )
        self._study.sampler = _SAMPLERS[self._file.sampler](seed=len(self._study.trials))
        space = {n: distribution_to_json(d) for n, d in self._file.distributions.items()}
        # What may not change once a study has begun.
        fixed = {METRIC: metric, "run": [cluster, *trainer], "cases": self._file.cases, **space}
        for name, value in fixed.items():
            if self._study.user_attrs.get(name, value) != value:
                raise UserError(
                    f"{self._directory} has a study with another {name}; give --output for this one"
                )
            self._study.set_user_attr(name, value)
        self._begun = [t for t in results.begun(self._study) if t.state == TrialState.RUNNING]

    def _next(self) -> optuna.Trial | None:
        """Returns a trial to train, first those that were interrupted; None if there is none."""
        if self._begun:
            return optuna.Trial(self._study, self._begun.pop(0)._trial_id)
        trials = results.begun(self._study, waiting=True)
        seen = {(frozenset(t.user_attrs[SETTINGS].items()), t.user_attrs[REPEAT]) for t in trials}
        is_grid = self._file.sampler == "grid"
        if is_grid:
            wanted = self._file.combinations
        else:
            wanted = [t.user_attrs[SETTINGS] for t in trials if t.state == TrialState.COMPLETE]
        # Repeats follow each other, so that a machine that becomes slower is so for all settings.
        for repeat in range(self._file.repeats):
            for settings in wanted:
                if (frozenset(settings.items()), repeat) not in seen:
                    attributes = {SETTINGS: settings, REPEAT: repeat}
                    self._study.enqueue_trial(settings, attributes)
        drawn = sum(not trial.user_attrs[REPEAT] for trial in trials)
        is_waiting = any(t.state == TrialState.WAITING for t in self._study.trials)
        if not is_waiting and (is_grid or drawn >= (self._file.trials or 0)):
            return None
        trial = self._study.ask({**self._file.distributions})
        if SETTINGS not in trial.user_attrs:
            trial.set_user_attr(REPEAT, 0)
            trial.set_user_attr(SETTINGS, trial.params)
        return trial

    def _start(self, trial: optuna.Trial) -> Training:
        """Starts or resumes the training of a trial.

        Raises:
          UserError: If a key or the source is wrong, or a file cannot be written.
          ConnectionError: If a store does not answer.
        """
        settings, repeat = trial.user_attrs[SETTINGS], trial.user_attrs[REPEAT]
        again = f", repeat {repeat}" if repeat else ""
        print(f"trial {trial.number}: {results.text(settings)}{again}", flush=True)
        cluster, launcher, trainer = self._plan(self._config(settings, repeat))
        name = _JOB.format(trial.number)
        file = self._directory / f"{name}.cluster.json"
        write_text(file, cluster)
        return Training.start(
            trial,
            [f"--cluster={file}", *launcher, "--", *trainer],
            f"{self._jobs}/{name}",
            self._directory / f"{name}.log",
        )

    def _end(self, training: Training) -> int:
        """Records the result of a training that has ended, and writes the results so far.

        Returns:
          0, or the exit code of a training that can go on later.

        Raises:
          UserError: If the first trials have all failed, or a file of the job cannot be used.
          ConnectionError: If a store does not answer.
        """
        number, log = training.trial.number, training.log
        if code := training.end():
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
            tail = "\n  ".join(lines[-_LAST_LINES:])
            print(f"trial {number} ended with exit code {code}; {shown(log)} ends:\n  {tail}")
            return code
        trials = results.begun(self._study)
        this = next(trial for trial in trials if trial.number == number)
        value = f"{self._study.user_attrs[METRIC]} {figure(this.value)}"
        outcome = {
            TrialState.COMPLETE: value,
            TrialState.PRUNED: f"stopped, as others are better; {value}",
            TrialState.FAIL: f"failed: {this.user_attrs.get(ERROR)}",
        }
        print(f"trial {number}: {outcome[this.state]}", flush=True)
        results.write(self._study, self._file.asks, self._directory)
        failed = [trial.state for trial in trials].count(TrialState.FAIL)
        if failed >= _FRUITLESS and not results.best(self._study):
            raise UserError(
                f"{failed} trials have failed, and none has succeeded; see {shown(log)}"
            )
        return 0

    def _conclude(self) -> None:
        """Writes `best.yaml`, with the keys of the best trial, and prints where things are.

        Raises:
          UserError: If no trial is done.
        """
        best = results.best(self._study)
        if not best:
            raise UserError(f"no trial has succeeded; see the logs in {shown(self._directory)}")
        settings, repeat = best.user_attrs[SETTINGS], best.user_attrs[REPEAT]
        command = cloud_options if self._backend == "vertex" else run
        keys = self._config(settings, repeat).model_dump(mode="json", exclude_unset=True)
        keys = {name: keys[name] for name in keys if name in command.KEYS.model.model_fields}
        keys["job_dir"] = f"{self._jobs}/{_JOB.format(best.number)}"
        write_text(self.best_file, yaml.safe_dump(keys))
        score = f"{self._study.user_attrs[METRIC]} {figure(best.value)}"
        print(f"best: trial {best.number}, {results.text(settings)}: {score}")
        print(f"page: {shown(self._directory / results.PAGE)}")
