"""Each test starts servers."""

import pytest
from saved_models import export_untrained

from components.evaluate.evaluate import evaluate
from components.evaluate.options import Options
from components.register import answers
from components.register.__main__ import main
from components.register.directory import DirectoryRegistry
from components.register.register import promote, register
from tests.errors import user_error

pytestmark = pytest.mark.cluster


@pytest.fixture
def judged(data, tmp_path):
    """Evaluates a model; returns the content of the evaluation, which promotes it."""

    def judge(model):
        evaluation = evaluate(
            Options(model_dir=model, data_dir=str(data), output=f"{tmp_path}/judged")
        )
        return {**evaluation, "decision": {"verdict": "promote", "reasons": []}}

    return judge


@pytest.fixture
def registry(tmp_path):
    return DirectoryRegistry(f"{tmp_path}/registry")


def promoted(model, evaluation, registry):
    about = {"evaluation": evaluation, "registry": str(registry), "name": "m"}
    return promote(version=register(model_dir=model, **about), **about)


def test_version_with_other_answers_refused(
    table, judged, registry, tmp_path, refused, monkeypatch, capsys
):
    model = export_untrained(table, tmp_path / "model")
    evaluation = judged(model)
    assert promoted(model, evaluation, registry) == "version 1 is the champion now"
    other = export_untrained(table, tmp_path / "other", seed=2)
    with user_error(r"not answer as when it was judged: it gives .* and gave probabilities"):
        promoted(other, {**evaluation, "champion": {"version": "1"}}, registry)
    place = ["2", "--registry", str(registry), "--name", "m"]
    assert "does not answer as when it was judged" in refused(main, "promote", *place)
    assert registry.aliases("m") == {"champion": "1"}
    assert main(["show", *place]) == 0 and "probabilities" not in capsys.readouterr().out
    # No server starts for what is decided already.
    monkeypatch.setattr(answers, "check", pytest.fail)
    assert "not promoted: the champion was none when" in promoted(model, evaluation, registry)


def test_slow_version_refused(table, judged, registry, tmp_path):
    model = export_untrained(table, tmp_path / "model")
    evaluation = judged(model)
    evaluation["answered"]["latency_ms"] = 1e-3
    with user_error(r"a row in \d\S* ms, and the gate allows 0.001 ms"):
        promoted(model, evaluation, registry)
    assert registry.aliases("m") == {}
