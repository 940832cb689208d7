"""Results of a study, for programs and for people: `study.csv`, `study.md` and `study.html`."""

import pathlib
from collections.abc import Mapping
from typing import Any

import optuna
import pandas
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from common.pages import render_page, templates
from common.storage.files import write_text
from components.evaluate.plots import plot

PAGE = "study.html"
# Attributes of the study and of its trials in Optuna.
METRIC, SETTINGS, REPEAT, ERROR, FIGURES = "metric", "settings", "repeat", "error", "figures"


def begun(study: optuna.Study, *, waiting: bool = False) -> list[FrozenTrial]:
    """Returns the trials by their numbers; those that wait for their turn only on request.

    A trial that was killed before its settings were complete is left out.
    """
    trials = [trial for trial in study.get_trials() if SETTINGS in trial.user_attrs]
    return [trial for trial in trials if waiting or trial.state != TrialState.WAITING]


def short(value: Any) -> str:
    """Returns the value of a setting for people; numbers that were drawn have many digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def text(settings: Mapping[str, Any]) -> str:
    """Returns settings for people, such as `learning_rate 0.001512, width 32`."""
    return ", ".join(f"{name} {short(value)}" for name, value in settings.items())


def best(study: optuna.Study) -> FrozenTrial | None:
    """Returns the best trial of the combination with the best median; None before one is done."""
    runs, metric = _table(study), study.user_attrs[METRIC]
    done = runs[runs.state == "complete"]
    if done.empty:
        return None
    medians = done.groupby(_names(study), dropna=False)[metric].transform("median")
    is_minimized = study.direction == StudyDirection.MINIMIZE
    ranked = done.assign(median=medians).sort_values(["median", metric], ascending=is_minimized)
    return study.trials[ranked.trial.iloc[0]]


def write(study: optuna.Study, asks: str, directory: pathlib.Path) -> None:
    """Writes the three files.

    Args:
      study: The study, of which at least one trial has begun.
      asks: Its question.
      directory: Directory for the files, in place of earlier ones.

    Raises:
      OSError: If a file cannot be written.
    """
    runs, names, metric = _table(study), _names(study), study.user_attrs[METRIC]
    points = runs[["trial", metric]].dropna().to_numpy()
    facts = {
        "asks": asks,
        "metric": metric,
        "best": best(study),
        "names": names,
        "groups": list(runs.groupby(names, sort=False, dropna=False)),
        "trials": begun(study),
        "plot": plot(metric, "Score of each trial.", [points.tolist()], xlabel="trial"),
    }
    environment = templates("pipelines")
    environment.filters |= {"short": short, "settings": text}
    markdown, body = (
        environment.get_template(name).render(facts) for name in ("study.txt", "study.html")
    )
    contents = {
        "study.csv": runs.to_csv(index=False),
        "study.md": markdown,
        PAGE: render_page(asks, body),
    }
    for name, content in contents.items():
        write_text(directory / name, content)


def _names(study: optuna.Study) -> list[str]:
    return list(begun(study)[0].user_attrs[SETTINGS])


def _table(study: optuna.Study) -> pandas.DataFrame:
    """Returns a row for each trial that has begun, with its settings, score and figures.

    `speed_up` is against the trial of the first combination with the same repeat, and `efficiency`
    is that by the replicas that it has more. Values that are not known are NaN.
    """
    names, metric = _names(study), study.user_attrs[METRIC]
    runs = pandas.DataFrame(
        {
            "trial": trial.number,
            "state": trial.state.name.lower(),
            **trial.user_attrs[SETTINGS],
            REPEAT: trial.user_attrs[REPEAT],
            metric: trial.value,
            **trial.user_attrs.get(FIGURES, {"examples_per_s": None, "replicas": None}),
            ERROR: trial.user_attrs.get(ERROR),
        }
        for trial in begun(study)
    )
    first = runs[(runs[names] == runs.loc[0, names]).all(axis=1)].groupby(REPEAT).first()
    runs["speed_up"] = runs.examples_per_s / runs[REPEAT].map(first.examples_per_s)
    more = runs.replicas / runs[REPEAT].map(first.replicas)
    runs["efficiency"] = runs.speed_up / more
    return runs
