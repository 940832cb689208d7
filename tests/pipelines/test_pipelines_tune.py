"""Studies: their files, the figures of a training, and searches that are killed and continued."""

import csv
import json
import random
import re
import signal

import optuna
import pytest
import yaml

from pipelines import run, tune
from pipelines.tuning import results, study_file
from pipelines.tuning.figures import measured
from pipelines.tuning.results import FIGURES, METRIC, REPEAT, SPACE
from pipelines.tuning.search import Search
from tests.errors import user_error
from tests.programs import run_python, start_python
from tests.root import ROOT
from tests.train.train_fakes import wait_until
from trainer.job.done import Done

RATES = {"learning_rate": {"log": ["1e-4", 0.1]}, "batch_size": [64, 128]}
MODEL = """
import keras

def net(manifest, *, width=16, rate=0.0, fault=0):
    if fault:
        raise RuntimeError(f"no layer {fault}")
    layers = [keras.layers.Rescaling(1 / 255), keras.layers.Flatten()]
    layers += [keras.layers.Dense(width, "relu"), keras.layers.Dropout(rate)]
    return keras.Sequential([keras.Input([8, 8, 1]), *layers, keras.layers.Dense(10)])
"""


@pytest.mark.parametrize("file", sorted((ROOT / "studies").glob("*.yaml")), ids=lambda f: f.stem)
def test_ready_study(file, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    study = study_file.load(str(file))
    Search(study, tmp_path, "process", [])
    assert study.asks.endswith("?")
    assert len(study.combinations) > 1


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ({"space": RATES}, "learning_rate.*grid.*list"),
        ({"space": RATES, "sampler": "tpe"}, "trials"),
        ({"space": {"momentum": {"log": [0.1, 0.01]}}, "sampler": "tpe", "trials": 3}, "momentum"),
        ({"space": {"no_such_flag": [1, 2]}}, "--no-such-flag"),
        ({"space": {"batch_size": [64, 0]}}, "batch_size 0"),
        ({"cases": {"a": {"cluster": "nowhere.yaml"}}}, "case a.*nowhere.yaml"),
        ({"space": {"seed": [1, 2]}, "trial": 2}, "trial"),
    ],
)
def test_wrong_study(tmp_path, content, named):
    file = tmp_path / "study.yaml"
    file.write_text(yaml.safe_dump({"asks": "?", **content}))
    with user_error(named):
        Search(study_file.load(str(file)), tmp_path, "process", [])


def test_settings_become_keys_and_flags():
    study = study_file.Study.read(
        {
            "asks": "?",
            "run": {"seed": 5, "momentum": 0.5, "trainer_flags": ["--threads=1"], "sync": False},
            "cases": {"a": {"train_steps": 7, "jit_compile": True}, "b": {"train_steps": 8}},
            "space": {"batch_size": [1, 2], "wide": [False]},
        }
    )
    assert len(study.combinations) == 4
    keys = study.keys(study.combinations[1], 2, {"seed", "train_steps", "batch_size"})
    flags = ["--threads=1", "--jit-compile", "--momentum=0.5", "--wide=False"]
    assert keys == {"seed": 7, "train_steps": 7, "batch_size": 2, "trainer_flags": flags}


def test_figures_of_restarted_training(tmp_path):
    """Time lost is what the second attempt takes to come further, and not the wait before it."""
    first = [("machine", 0, 100), ("start", 0, 101), ("step", 1, 103), ("step", 2, 104)]
    first += [("checkpoint", 2, 104.5), ("step", 3, 105), ("step", 4, 106)]
    second = [("machine", 0, 500), ("resume", 2, 503), ("step", 4, 504), ("step", 5, 505)]
    second += [("evaluation", 5, 506)]
    costs = {"checkpoint": {"waited_s": 0.25}, "evaluation": {"seconds": 0.5}}
    for attempt, events in enumerate([first, second]):
        lines = [
            {"event": kind, "step": step, "time": time, **costs.get(kind, {})}
            for kind, step, time in events
        ]
        text = "\n".join(map(json.dumps, lines))
        (tmp_path / f"journal-chief-0-{attempt}.jsonl").write_text(text)
    record = {"identity": {}, "settings": {"strategy": "synchronous"}}
    record["replicas"] = {"chief": 1, "worker": 1, "evaluator": 1}
    (tmp_path / "job.json").write_text(json.dumps(record))
    result = Done(step=5, epochs=1, loss=0.1, validation={}, seconds=6, examples_per_s=9)
    assert measured(str(tmp_path), result) == {
        "replicas": 2,
        "time_s": 12.0,
        "examples_per_s": 9.0,
        "checkpoints_s": 0.25,
        "evaluation_s": 0.5,
        "restarts_s": 5.0,
        "machine_hours": 36 / 3600,
    }


def test_best_combination_and_speed_up(tmp_path):
    """The best has the best median; speed-up is against the first in the same repeat."""
    study = optuna.create_study(direction="minimize")
    study.set_user_attr(METRIC, "loss")
    study.set_user_attr(SPACE, {"case": "?"})
    cases = {"case": optuna.distributions.CategoricalDistribution(["a", "b"])}
    speeds, losses = {"a": [100, 200], "b": [300, 400]}, {"a": [0.1, 0.9], "b": [0.4, 0.3]}
    for repeat in range(2):
        for case in "ab":
            figures = {"replicas": 1 + (case == "b"), "examples_per_s": speeds[case][repeat]}
            trial = optuna.create_trial(
                params={"case": case},
                distributions=cases,
                value=losses[case][repeat],
                user_attrs={REPEAT: repeat, FIGURES: figures},
            )
            study.add_trial(trial)
    assert results.write(study, "Which?", tmp_path).number == 3
    lines = list(csv.DictReader((tmp_path / "study.csv").open()))
    assert [line["speed_up"] for line in lines] == ["1.0", "3.0", "1.0", "2.0"]
    assert [line["efficiency"] for line in lines] == ["1.0", "1.5", "1.0", "1.0"]
    assert "| b | 2 of 2 | 0.3500 (0.3000 to 0.4000) | 2 |" in (tmp_path / "study.md").read_text()


def test_run_takes_finished_training_only(tmp_path, refused):
    line = ["--set", f"job_dir={tmp_path}", "--runs-dir", tmp_path / "runs"]
    assert "is not the directory of a finished training" in refused(run.main, *line)
    assert not (tmp_path / "runs").exists()


def test_directory_of_job_is_refused(tmp_path, refused):
    (tmp_path / "job.json").touch()
    line = [ROOT / "studies" / "digits.yaml", "--output", tmp_path]
    assert "a training job has this directory" in refused(tune.main, *line)


class Studied:
    """A study of the model above; its file, trials, runs and registry are in one directory."""

    def __init__(self, place):
        self.place, self.output = place, place / "study"
        self.line = ["pipelines/tune.py", place / "study.yaml", "--output", self.output]
        self.line += ["--runs-dir", place / "runs", "--registry", place / "registry"]
        self.env = {"PYTHONPATH": str(place)}
        (place / "mine.py").write_text(MODEL)

    def write(self, content):
        (self.place / "study.yaml").write_text(yaml.safe_dump({"asks": "?", **content}))

    def tune(self, *flags, code=0):
        return run_python(*self.line, *flags, code=code, env=self.env)

    def trials(self):
        return list(csv.DictReader((self.output / "study.csv").open()))

    def events(self, kind):
        """Returns the trial of each event of this kind in the journals."""
        files = self.output.glob("trial-*/journal-*")
        lines = [(path.parent.name, line) for path in files for line in path.open()]
        return [trial for trial, line in lines if f'"event": "{kind}"' in line]


@pytest.fixture
def studied(tmp_path):
    return Studied(tmp_path)


@pytest.mark.pipeline
def test_failed_trials_are_shown_and_passed(studied, tmp_path):
    """Five errors of a user's code in a row stop the study, and the same command goes on."""
    cluster = yaml.safe_load((ROOT / "clusters" / "local.yaml").read_text())
    cluster["scheduling"] = {"max_restarts": 0}
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(cluster))
    common = {"model": "mine:net", "train_steps": 10, "cluster": str(tmp_path / "cluster.yaml")}
    # The last fault is there for a second training beside the fifth one that fails.
    study = {"run": common, "space": {"fault": [1, 2, 3, 4, 5, 6, 0]}, "parallel": 2}
    studied.write(study)

    stopped = studied.tune(code=2)
    assert "5 trials failed one after the other" in stopped
    assert re.search(r"trial \d: fail, RuntimeError: no layer \d \(exit code 1\)", stopped)
    assert "best: trial 6, fault 0" in studied.tune()
    trials = studied.trials()
    assert [trial["state"] for trial in trials] == ["fail"] * 6 + ["complete"]
    assert trials[0]["error"] == "RuntimeError: no layer 1 (exit code 1)"

    studied.write(study | {"space": {"fault": [0], "width": [8]}})
    assert "study with another space; give --output" in studied.tune(code=2)


@pytest.mark.pipeline
def test_kills_lose_no_trial(studied, tmp_path):
    """A study of an own model is stopped and killed; its best trial becomes the champion."""
    common = {"model": "mine:net", "train_steps": 60, "cluster": "clusters/local.yaml"}
    common |= {"eval_every_steps": 20, "checkpoint_num_steps": 20, "min_accuracy": 0.1}
    study = {"run": common, "sampler": "tpe", "trials": 3, "prune": True}
    study["space"] = {"width": {"range": [8, 64]}, "learning_rate": {"log": [1e-4, 1e-2]}}
    studied.write(study)
    chance = random.Random(0)

    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGKILL):
        process = start_python(*studied.line, env=studied.env, stdout=None)
        goal = len(studied.events("evaluation")) + chance.randrange(1, 4)
        wait_until(
            lambda goal=goal, p=process: len(studied.events("evaluation")) >= goal or p.poll() == 0,
            limit_s=300,
        )
        process.send_signal(number)
        assert process.wait() in (0, 128 + number, -number)
    studied.write(study | {"parallel": 2})
    printed, trials = studied.tune("--then", "register"), studied.trials()
    assert [trial["trial"] for trial in trials] == ["0", "1", "2"]
    assert {trial["state"] for trial in trials} <= {"complete", "pruned"}
    ended = studied.events("done")
    assert len(ended) == len({*ended}) == sum(trial["state"] == "complete" for trial in trials)
    best = max(trials, key=lambda trial: float(trial["accuracy"]))
    assert f"best: trial {best['trial']}" in printed
    version = json.loads((tmp_path / "registry" / "digits" / "1" / "version.json").read_text())
    assert version["settings"]["width"] == int(best["width"])
