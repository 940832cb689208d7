import pathlib

import pytest

from tests.lint import rooms


def write(root: pathlib.Path, files: dict[str, str]) -> pathlib.Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


GOOD = {
    "pipelines/run.py": "from components.a.__main__ import main\nimport trainer.task\n",
    "components/a/__main__.py": "from components.a.high import top\n",
    "components/a/high/top.py": "from components.a.low import file\n",
    "components/a/low/file.py": "from trainer import task\n",
    "trainer/task.py": "",
}


def test_a_house_whose_imports_run_down_has_no_problem_and_is_drawn_in_floors(tmp_path: pathlib.Path):
    root = write(tmp_path, GOOD)
    assert rooms.problems(root) == []
    drawn = list(rooms.drawing(root))
    assert ".:  pipelines  >  components  >  trainer" in drawn
    assert "components.a:  __main__  >  high  >  low" in drawn


@pytest.mark.parametrize(
    ("file", "text", "told"),
    [
        (
            "trainer/task.py",
            "import components.a.high.top\n",
            "trainer.task imports components.a.high.top: imports run",
        ),
        ("components/a/low/file.py", "import pipelines.run\n", "components.a.low.file imports pipelines.run"),
        ("components/a/low/file.py", "from components.a.high import top\n", "components.a: imports run in a circle"),
        (
            "components/a/low/file.py",
            "def f():\n    from components.a.high.top import x\n",
            "  components.a.low.file imports components.a.high.top",
        ),
        ("components/a/low/other.py", "from components.a.low.file import x\n", ""),
        ("components/a/low/top.py", "", "components/a: two files are named 'top'"),
        ("trainer/long.py", "x = 1\n" * 401, "trainer/long.py: 401 lines; at most 400"),
        ("trainer/cloud.py", "def f():\n    import kfp.dsl\n", "trainer.cloud imports kfp.dsl: the trainer knows"),
    ],
)
def test_what_breaks_the_plan_is_told(tmp_path: pathlib.Path, file: str, text: str, told: str):
    found = rooms.problems(write(tmp_path, {**GOOD, file: text}))
    assert any(line.startswith(told) for line in found) if told else not found


def test_a_folder_of_more_than_fifteen_files_is_told(tmp_path: pathlib.Path):
    crowd = {f"trainer/m{i}.py": "" for i in range(15)}
    assert rooms.problems(write(tmp_path, {**GOOD, **crowd})) == ["trainer: 16 files; at most 15 in a folder"]
