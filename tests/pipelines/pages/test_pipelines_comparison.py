"""Two runs side by side: the sentence, the page, and where it is."""

import json
import re

import pytest

from pipelines import runs
from pipelines.pages.comparison import said

NAMES, SAME = ("a", "b"), {"fingerprint": "f", "split": "test", "metric": "auc"}


def evaluation(value: float, ends: list[float] | None, **differs: object) -> dict:
    return SAME | {"metrics": {"auc": value, "examples": 1346}, "intervals": {"candidate": {"auc": ends}}} | differs


def sentence(one: float, other: float, *ends: list[float] | None, **differs: object) -> str:
    return said(NAMES, [evaluation(one, ends[0]), evaluation(other, ends[1], **differs)])


@pytest.mark.parametrize(
    ("ends", "told"),
    [
        (([0.8, 0.9], [0.9, 0.95]), "; the 95 % intervals overlap."),
        (([0.9, 0.95], [0.8, 0.89]), "; the 95 % intervals lie apart."),
        (([0.8, 0.89], [0.9, 0.95]), "; the 95 % intervals lie apart."),
        (([0.8, 0.99], [0.9, 0.95]), "; the 95 % intervals overlap."),
        ((None, [0.9, 0.95]), "."),
    ],
)
def test_a_sentence_has_both_values_and_whether_their_intervals_overlap(ends, told):
    assert sentence(0.9, 0.92, *ends) == f"On the same 1,346 test records auc is 0.9000 for a and 0.9200 for b{told}"


@pytest.mark.parametrize("what", ["fingerprint", "split", "metric"])
def test_of_other_records_or_another_metric_no_value_is_set_beside_the_other(what):
    told = sentence(0.9, 0.92, [0.8, 0.95], [0.9, 0.95], **{what: "other"})
    assert "different records" in told and "0.9" not in told


def test_a_run_without_metrics_is_named():
    assert "b came to no test metrics" in said(NAMES, [evaluation(1.0, None), {}])


def test_the_page_lies_beside_the_list_which_leads_there_and_goes_with_a_run(make, tmp_path, capsys):
    place = tmp_path / "runs"
    for name, accuracy, rate in (("1", 0.75, 0.001), ("2", 0.5, 0.01), ("1-2", 0.5, 0.01)):
        run = make(name, accuracy=accuracy, settings={"learning_rate": rate, "schedule": "constant"})
        evaluation = SAME | {"metric": "accuracy", "intervals": {"candidate": {"accuracy": [0.4, 0.8]}}}
        evaluation["metrics"] = {"accuracy": accuracy, "examples": 346}
        (run / "evaluation.json").write_text(json.dumps(evaluation))
        summary = json.loads((run / "summary.json").read_text())
        summary["metrics"]["examples"] = 346
        (run / "summary.json").write_text(json.dumps(summary))
    for pair in ("12", ("1", "1-2")):
        assert runs.main(["compare", *pair, "--runs-dir", str(place)]) == 0
    page = place / "compare-1-2.html"
    assert f"intervals overlap.\npage: {page}\n" in capsys.readouterr().out
    text = re.sub(r"<[^>]+>|\s+", " ", page.read_text())
    assert "the 95 % intervals overlap" in text and str(tmp_path) not in page.read_text()
    assert re.search(r"accuracy +0\.7500 +0\.4000 to 0\.8000 +0\.5000 +0\.4000 to 0\.8000 +-0\.2500", text)
    assert re.search(r"learning_rate +0\.001 +0\.01 ", text) and "schedule" not in text
    listed = (place / "index.html").read_text()
    assert set(re.findall('href="([^"]+)"', page.read_text())) == {"index.html", "1/report.html", "2/report.html"}
    assert 'href="compare-1-2.html"' in listed and 'href="compare-1-1-2.html"' in listed
    runs.main(["delete", "2", "--yes", "--runs-dir", str(place)])
    assert not page.exists() and (place / "compare-1-1-2.html").exists()
    assert "compare-1-2" not in (place / "index.html").read_text()


def test_the_page_goes_where_it_is_asked_for_and_leads_back_or_says_why_it_cannot(make, refused, tmp_path):
    make("1"), make("2", "failed")
    asked = ["compare", "1", "2", "--runs-dir", str(tmp_path / "runs"), "--page"]
    (tmp_path / "else").mkdir()
    assert runs.main([*asked, str(tmp_path / "else" / "both.html")]) == 0
    assert 'href="../runs/1/report.html"' in (tmp_path / "else" / "both.html").read_text()
    assert not (tmp_path / "runs" / "index.html").exists()
    assert "No such file or directory; --page writes it elsewhere" in refused(runs.main, *asked, tmp_path / "no" / "x")
