from __future__ import annotations

from pathlib import Path

import pytest
from bad_clusters import GOOD, bad_files

from components.train.__main__ import main
from trainer.base.errors import UserError


@pytest.fixture(scope="module")
def bad() -> list[tuple[str, str]]:
    return list(bad_files())


def launch(directory: Path, text: str) -> None:
    path = directory / "cluster.yaml"
    path.write_text(text)
    flags = ["--data-dir", "data", "--job-dir", "job", "--train-steps", "9"]
    main(["--cluster", str(path), "--dry-run", "--backend", "vertex", "--image", "image", "--", *flags])


@pytest.mark.parametrize("text", GOOD, ids=["ours", "AI Platform's"])
def test_the_files_that_the_bad_ones_are_made_from_are_good(tmp_path: Path, text: str):
    launch(tmp_path, text)


def test_there_are_many_bad_files_of_both_kinds_and_no_two_are_equal(bad: list[tuple[str, str]]):
    texts = {text for text, _ in bad}
    old = sum("trainingInput" in text for text in texts)
    assert min(old, len(texts) - old) >= 100
    assert len(texts) > 400


def test_each_bad_file_is_refused_in_one_line_that_names_the_place(tmp_path: Path, bad: list[tuple[str, str]]):
    """Anything but a UserError would be a traceback."""
    for text, place in bad:
        with pytest.raises(UserError) as caught:
            launch(tmp_path, text)
        message = str(caught.value).removeprefix(f"{tmp_path}/cluster.yaml: ")
        assert place in message, text
        assert len(message.splitlines()) == 1
        assert 20 < len(message) < 600
    assert [path.name for path in tmp_path.iterdir()] == ["cluster.yaml"]
