"""Results of a study, for programs and for people: `study.csv`, `study.md` and `study.html`."""

import csv
import io
import pathlib
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import optuna
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from common.pages import render_page, templates
from common.storage.files import write_text
from components.evaluate.plots import plot

PAGE = "study.html"
# Attributes of the study and of its trials in Optuna.
METRIC, SETTINGS, REPEAT, ERROR, FIGURES = "metric", "settings", "repeat", "error", "figures"
# Headings of the figures in tables for people, and the format of their numbers.
_HEADINGS = {
    "replicas": ("replicas", ".0f"),
    "time_s": ("time, s", ",.1f"),
    "examples_per_s": ("examples/s", ",.0f"),
    "speed_up": ("speed-up", ".2f"),
    "efficiency": ("efficiency", ".0%"),
    "checkpoints_s": ("checkpoints, s", ",.2f"),
    "evaluation_s": ("evaluation, s", ",.2f"),
    "restarts_s": ("restarts, s", ",.1f"),
    "machine_hours": ("machine-hours", ",.4f"),
}


def begun(study: optuna.Study, *, waiting: bool = False) -> list[FrozenTrial]:
    """Returns the trials by their numbers; those that wait for their turn only on request.

    A trial that was killed before its settings were complete is left out.
    """
    trials = [trial for trial in study.get_trials() if SETTINGS in trial.user_attrs]
    return [trial for trial in trials if waiting or trial.state != TrialState.WAITING]


def shown(value: Any) -> str:
    """Returns the value of a setting for people; numbers that were drawn have many digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def combinations(trials: Iterable[FrozenTrial]) -> list[list[FrozenTrial]]:
    """Returns the trials grouped by their settings, in the order in which these first occur."""
    groups: dict[frozenset[Any], list[FrozenTrial]] = {}
    for trial in trials:
        groups.setdefault(frozenset(trial.user_attrs[SETTINGS].items()), []).append(trial)
    return list(groups.values())


def best(study: optuna.Study) -> FrozenTrial | None:
    """Returns the best trial of the combination with the best median; None before one is done."""
    sign = 1 if study.direction == StudyDirection.MAXIMIZE else -1

    def score(trials: Iterable[FrozenTrial]) -> float:
        return sign * statistics.median(trial.value or 0.0 for trial in trials)

    groups = combinations(t for t in begun(study) if t.state == TrialState.COMPLETE)
    return max(max(groups, key=score), key=lambda trial: score([trial])) if groups else None


def write(study: optuna.Study, asks: str, directory: pathlib.Path) -> None:
    """Writes the three files.

    Args:
      study: The study, of which at least one trial has begun.
      asks: Its question.
      directory: Directory for the files, in place of earlier ones.

    Raises:
      OSError: If a file cannot be written.
    """
    trials = begun(study)
    metric = study.user_attrs[METRIC]
    runs = {run["trial"]: run for run in _runs(study, trials)}
    scores = [(number, run[metric]) for number, run in runs.items() if run[metric] is not None]
    words = "Score of each trial that is done, in their order."
    facts = {
        "asks": asks,
        "metric": metric,
        "best": best(study),
        "rows": [
            {**_texts(group), **_medians([runs[trial.number] for trial in group], metric)}
            for group in combinations(trials)
        ],
        "trials": trials,
        "plot": plot(metric, words, [scores] if scores else [], xlabel="trial"),
    }
    file = io.StringIO()
    names = dict.fromkeys(name for run in runs.values() for name in run)
    writer = csv.DictWriter(file, list(names), lineterminator="\n")
    writer.writeheader()
    writer.writerows(runs.values())
    environment = templates("pipelines")
    environment.filters["shown"] = shown
    text, body = (
        environment.get_template(name).render(facts) for name in ("study.txt", "study.html")
    )
    contents = {"study.csv": file.getvalue(), "study.md": text, PAGE: render_page(asks, body)}
    for name, content in contents.items():
        write_text(directory / name, content)


def _runs(study: optuna.Study, trials: Sequence[FrozenTrial]) -> list[dict[str, Any]]:
    """Returns a line of `study.csv` for each trial.

    Its `speed_up` is against the trial of the first combination that has the same repeat, and its
    `efficiency` is that by the replicas that it has more.
    """
    first = {trial.user_attrs[REPEAT]: trial for trial in combinations(trials)[0]}
    lines = []
    for trial in trials:
        repeat = trial.user_attrs[REPEAT]
        figures = trial.user_attrs.get(FIGURES, {})
        base = first[repeat].user_attrs.get(FIGURES, {}) if repeat in first else {}
        speed, usual = figures.get("examples_per_s"), base.get("examples_per_s")
        speed_up = speed / usual if speed and usual else None
        lines.append(
            {
                "trial": trial.number,
                "state": trial.state.name.lower(),
                **trial.user_attrs[SETTINGS],
                REPEAT: repeat,
                study.user_attrs[METRIC]: trial.value,
                **figures,
                "speed_up": speed_up,
                "efficiency": speed_up and speed_up * base["replicas"] / figures["replicas"],
                ERROR: trial.user_attrs.get(ERROR, ""),
            }
        )
    return lines


def _texts(group: Sequence[FrozenTrial]) -> dict[str, str]:
    """Returns the settings of a combination, and how many of its trials are done."""
    done = sum(trial.state == TrialState.COMPLETE for trial in group)
    settings = {name: shown(value) for name, value in group[0].user_attrs[SETTINGS].items()}
    return {**settings, "done": f"{done} of {len(group)}"}


def _medians(runs: Sequence[Mapping[str, Any]], metric: str) -> dict[str, str]:
    """Returns the median of each figure, with its range if the runs differ, by heading."""
    cells = {}
    for name, (heading, form) in {metric: (metric, ".4f"), **_HEADINGS}.items():
        values = [run[name] for run in runs if run.get(name) is not None]
        ends = f" ({min(values):{form}} to {max(values):{form}})" if len({*values}) > 1 else ""
        cells[heading] = f"{statistics.median(values):{form}}{ends}" if values else "-"
    return cells
