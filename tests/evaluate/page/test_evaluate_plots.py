import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from components.evaluate.page import plots


def one(title: str = "Loss", told: str = "It falls from 2 to 1.") -> str:
    return plots.plot(title, told, lambda figure: figure.add_subplot(xlabel="a & b").plot([1, 2], [2, 1], "o-"))


def test_a_plot_is_said_in_words_and_leaves_size_and_colours_to_the_page():
    whole = ET.fromstring(one("a < b", "1 & 2"))
    svg = whole.find("{*}svg")
    assert whole.find("figcaption").text == "a < b" and svg.find("{*}title").text == "1 & 2"
    assert svg.get("role") == "img" and "viewBox" in svg.keys() and "width" not in svg.keys()  # noqa: SIM118
    assert "a & b" in [text.text for text in svg.findall(".//{*}text")]
    assert "var(--soft)" in one() and not re.search("|".join(plots.VARIABLES), one())
    assert not svg.findall(".//{*}style") and "font-family" not in one() and "<!DOCTYPE" not in one()


def test_a_plot_has_the_same_bytes_each_time_and_no_name_of_another_plot():
    assert one() == one()
    loss, auc = (re.findall(r' id="(\w+)"', one(title)) for title in ("Loss", "AUC"))
    assert loss and len({*loss, *auc}) == len(loss) + len(auc)
    assert set(re.findall(r"[(\"]#(\w+)", one())) <= set(loss)


@pytest.mark.parametrize("count", [0, 1, 300, 301, 5000])
def test_a_long_line_is_drawn_by_means_over_its_whole_length(count):
    xs, ys = plots.thinned(range(count), [7.0] * count)
    assert len(xs) == len(ys) == min(count, 300) and (ys == 7).all() and (np.diff(xs) > 0).all()
    assert not count or np.average(
        xs, weights=[len(p) for p in np.array_split(range(count), len(xs))]
    ) == pytest.approx((count - 1) / 2)
