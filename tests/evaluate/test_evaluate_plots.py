import base64
import xml.etree.ElementTree as ET

from components.evaluate import plots


def line(title: str = "Loss") -> str:
    return plots.plot(title, "It is 1 & 2.", [[(1, 2), (2, 1)]], xlabel="a & b")


def test_plot_is_an_image_with_words():
    figure = ET.fromstring(str(line("a < b")).replace('"></figure>', '"/></figure>'))
    image = figure.find("img")
    assert figure.find("figcaption").text == "a < b" and image.get("alt") == "It is 1 & 2."
    svg = ET.fromstring(base64.b64decode(image.get("src").partition("base64,")[2]))
    assert "a & b" in [text.text for text in svg.findall(".//{*}text")]


def test_plot_has_same_bytes_each_time():
    assert line() == line()
