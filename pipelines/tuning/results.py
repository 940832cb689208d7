"""Results of a study, for programs and for people: `study.csv`, `study.md` and `study.html`."""

import pathlib
from collections.abc import Mapping
from typing import Any

import optuna
import pandas
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial

from common.pages import render_page, templates
from common.storage.files import write_text

PAGE = "study.html"
# Attributes of the study in Optuna: what trials are compared by, and the settings that vary.
METRIC, SPACE = "metric", "space"
# Attributes of its trials.
REPEAT, ERROR, FIGURES = "repeat", "error", "figures"


def begun(study: optuna.Study) -> list[FrozenTrial]:
    """Returns the trials, sorted by number, without one that was killed before it had settings."""
    return [trial for trial in study.get_trials() if REPEAT in trial.user_attrs]


def short(value: Any) -> str:
    """Returns the value of a setting for people; a float has 4 significant digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def text(settings: Mapping[str, Any]) -> str:
    """Returns settings for people, such as `learning_rate 0.001512, width 32`."""
    return ", ".join(f"{name} {short(value)}" for name, value in settings.items())


def write(study: optuna.Study, asks: str, directory: pathlib.Path) -> FrozenTrial | None:
    """Writes `study.csv`, `study.md` and `study.html`.

    Args:
      study: The study, of which at least one trial has begun.
      asks: Its question.
      directory: Directory for the files, in place of earlier ones.

    Returns:
      The best trial of the combination with the best median; None before one is complete.

    Raises:
      OSError: If a file cannot be written.
    """
    runs, names, metric = _table(study), [*study.user_attrs[SPACE]], study.user_attrs[METRIC]
    done = runs[runs.state == "complete"]
    medians = done.groupby(names, sort=False)[metric].transform("median")
    ranked = done.assign(median=medians).sort_values(
        ["median", metric], ascending=study.direction == StudyDirection.MINIMIZE
    )
    best = None if ranked.empty else study.trials[ranked.trial.iloc[0]]
    facts = {
        "asks": asks,
        "metric": metric,
        "best": best,
        "names": names,
        "groups": list(runs.groupby(names, sort=False)),
        "trials": begun(study),
    }
    environment = templates("pipelines")
    environment.filters |= {"short": short, "settings": text}
    markdown, body = (
        environment.get_template(name).render(facts) for name in ("study.txt", "study.html")
    )
    write_text(directory / "study.csv", runs.to_csv(index=False))
    write_text(directory / "study.md", markdown)
    write_text(directory / PAGE, render_page(asks, body))
    return best


def _table(study: optuna.Study) -> pandas.DataFrame:
    """Returns a row for each trial that has begun, with its settings, score and figures.

    `speed_up` is the ratio of its examples per second to those of the trial of the first
    combination with the same repeat, and `efficiency` is `speed_up` divided by the ratio of their
    numbers of replicas. Values that are not known are NaN.
    """
    names, metric = [*study.user_attrs[SPACE]], study.user_attrs[METRIC]
    runs = pandas.DataFrame(
        {
            "trial": trial.number,
            "state": trial.state.name.lower(),
            **trial.params,
            REPEAT: trial.user_attrs[REPEAT],
            metric: trial.value,
            **trial.user_attrs.get(FIGURES, {"examples_per_s": None, "replicas": None}),
            ERROR: trial.user_attrs.get(ERROR),
        }
        for trial in begun(study)
    ).astype({"examples_per_s": float, "replicas": float})
    first = runs[runs.groupby(names, sort=False).ngroup() == 0].set_index(REPEAT)
    runs["speed_up"] = runs.examples_per_s / runs[REPEAT].map(first.examples_per_s)
    runs["efficiency"] = runs.speed_up / (runs.replicas / runs[REPEAT].map(first.replicas))
    return runs
