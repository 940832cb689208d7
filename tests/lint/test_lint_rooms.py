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
    "components/a/low/other.py": "from components.a.low.file import x\n",
    "trainer/task.py": "",
}


def test_a_house_whose_imports_run_down_has_no_problem_and_is_drawn_in_floors(tmp_path: pathlib.Path):
    root = write(tmp_path, GOOD)
    assert rooms.problems(root) == []
    drawn = list(rooms.drawing(root))
    assert ".:  pipelines  >  components  >  trainer" in drawn
    assert "components.a:  __main__  >  high  >  low" in drawn


LOW = "components/a/low/file.py"
# By what is told first of a file, its path and text.
WRONG = {
    "trainer.task imports components.a.high.top: imports run": ("trainer/task.py", "import components.a.high.top\n"),
    "components.a.low.file imports pipelines.run": (LOW, "import pipelines.run\n"),
    "components.a: imports run in a circle": (LOW, "from components.a.high import top\n"),
    "  components.a.low.file imports components.a.high.top": (
        LOW,
        "def f():\n    from components.a.high.top import x\n",
    ),
    "components/a: two files are named 'top'": ("components/a/low/top.py", ""),
    "trainer/long.py: 401 lines; at most 400": ("trainer/long.py", "x = 1\n" * 401),
    "trainer.cloud imports kfp.dsl: the trainer knows": ("trainer/cloud.py", "def f():\n    import kfp.dsl\n"),
}


@pytest.mark.parametrize(("told", "file"), WRONG.items())
def test_what_breaks_the_plan_is_told(tmp_path: pathlib.Path, told: str, file: tuple[str, str]):
    assert any(line.startswith(told) for line in rooms.problems(write(tmp_path, {**GOOD, file[0]: file[1]})))


def test_a_folder_of_more_than_fifteen_files_is_told(tmp_path: pathlib.Path):
    crowd = {f"trainer/m{i}.py": "" for i in range(15)}
    assert rooms.problems(write(tmp_path, {**GOOD, **crowd})) == ["trainer: 16 files; at most 15 in a folder"]
