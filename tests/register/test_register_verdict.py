"""One decision, whoever is asked: the gate's step, registration, promotion, the registry, the page and the summary."""

import json

import numpy as np
import pytest
from kfp import dsl

from components.evaluate import component, report
from components.evaluate.bootstrap import Figures
from components.evaluate.comparing import beat, reach
from components.evaluate.gate import CHAMPION, PROMOTE, REGISTER, REJECT, Comparison, decide
from components.register.register import promote, register
from components.register.registry import Registry
from components.undefined import plain
from trainer.base.errors import UserError
from trainer.nn.tasks.classification import Classification
from trainer.nn.tasks.regression import Regression

TASKS = {"auc": Classification(("no", "yes")), "rmse": Regression(("a",), (1.0,))}


def figures(draw: np.random.Generator, metric: str, value: float, like: Figures | None) -> Figures:
    """A model's, with samples that stray about the value, as those of another one do or by themselves."""
    strayed = (
        like.samples[metric] - like.metrics[metric] if like else draw.normal(size=200) * draw.choice([0.003, 0.03])
    )
    own = draw.normal(size=200) * draw.choice([0.0, 0.01])
    return Figures(metrics={metric: value}, samples={metric: value + strayed + own}, records=100)


def drawn(draw: np.random.Generator) -> tuple[str, list[Comparison], str]:
    """The metric, the comparisons of a made-up model, and the verdict that they come to by the figures alone."""
    metric, values = str(draw.choice([*TASKS])), [0.7, 0.8, 0.81, 0.9, np.nan]
    task, less = TASKS[metric], metric == "rmse"
    value, least, base, best = (float(draw.choice(values, p=[0.3, 0.3, 0.2, 0.15, 0.05])) for _ in range(4))
    confidence, margin = draw.choice([0.95, 0.5, None]), float(draw.choice([0.0, 0.05]))
    ours = figures(draw, metric, value, None)
    comparisons, expected = [], []
    for who, bound, lead in (("baseline", base, 0.0), (CHAMPION, best, margin)):
        theirs = ours if bound == value else figures(draw, metric, bound, ours)
        found = beat(who, f"the {who}", ours, theirs, task, confidence=confidence, margin=lead)
        difference = bound - value if less else value - bound
        swing = ours.samples[metric] - theirs.samples[metric]
        swing = np.sort(-swing if less else swing)
        allowed = int(np.floor((1 - (confidence or 0)) * 201 + 1e-9)) - 1  # samples that may say otherwise
        sure = confidence is None or (swing[allowed] > lead and swing[-1 - allowed] - difference < difference - lead)
        expected.append(bool(difference > lead and sure))
        comparisons.append(found)
        assert not (found.passed and (value == bound or np.isnan(value + bound))), "equal, or no number"
    threshold = reach("threshold", metric, value, least, task, 100)
    alone = bool(draw.random() < 0.2)
    if alone:
        comparisons[1], expected[1] = Comparison(who=CHAMPION, passed=True, words="there is no champion"), True
    worthy = (value <= least if less else value >= least) and expected[0]
    verdict = (PROMOTE if expected[1] else REGISTER) if worthy else REJECT
    return metric, [threshold, *comparisons], verdict


def told(page: str) -> str:
    return page.split("Decision: ")[1].split("<")[0]


@pytest.mark.parametrize("count", [50, pytest.param(2000, marks=pytest.mark.slow)])
def test_everybody_says_the_same_of_whatever_was_compared(evaluated, tmp_path, monkeypatch, count):
    monkeypatch.setattr(report, "judged", lambda _: [])  # plots take time, and say no verdict
    draw, place, seen = np.random.default_rng(count), str(tmp_path / "registry"), []
    directory, evaluation = evaluated("job", 0.9)
    model, store = str(directory / "model"), Registry(place)
    for _ in range(count):
        metric, comparisons, verdict = drawn(draw)
        version = store.alias("m", CHAMPION)
        _, lead, last = comparisons
        ours, base, best = (
            {metric: value, "loss": 1.0, "examples": 100} for value in (lead.candidate, lead.other, last.other)
        )
        found = {
            "metrics": ours,
            "metric": metric,
            "baseline": {"rule": "nothing", **base},
            "champion": version and {"version": version, "metrics": best, "incomparable": ""},
            "intervals": {"candidate": {metric: (0.4, 0.6), "loss": None}},
            **{"gate": {}, "figures": {}, "parts": {"x": [{"value": "1", "records": 9, "metrics": ours}]}, "worst": []},
            "decision": decide(metric, comparisons),
        }
        evaluation |= plain(found)
        seen.append(verdict)
        (tmp_path / "evaluation").write_text(json.dumps(evaluation, allow_nan=False))
        assert component.gate(evaluation=dsl.Artifact(name="evaluation", uri=str(tmp_path / "evaluation"))) == verdict
        assert told(report.page(evaluation)) == verdict and report.summary(evaluation).startswith(f"## {verdict}\n")
        if verdict == REJECT:
            with pytest.raises(UserError, match="the evaluation rejects"):
                register(model_dir=model, evaluation=evaluation, registry=place, name="m")
            assert len(store.versions("m")) == len(seen) - seen.count(REJECT)
            continue
        made = register(model_dir=model, evaluation=evaluation, registry=place, name="m")
        said = promote(evaluation=evaluation, registry=place, name="m", version=made)
        assert (
            (store.alias("m", CHAMPION) == made)
            == (verdict == PROMOTE)
            == said.startswith(f"version {made} is the champion")
        )
    assert min(map(seen.count, (REJECT, REGISTER, PROMOTE))) > count / 20
