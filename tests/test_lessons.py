"""The README, lessons and examples: their commands are run, and print what the pages say.

Each page is one session of a shell in a folder that looks like a clone. Downloads are replaced by
small files of the same kind. A line `...` of the expected output stands for any lines.
"""

import json
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import load_digits

from common.container_engine import DEFAULT_IMAGE
from tests.convert.dataset_files import idx_bytes
from tests.programs import run_python, start
from tests.root import ROOT

PAGES = sorted([*(ROOT / "docs" / "lessons").glob("*.md"), *ROOT.glob("examples/*/README.md")])
BLOCKS = re.compile(r"```sh\n(.*?)```\n(?:\n```\n(.*?)```\n)?", re.DOTALL)
# What differs between machines and runs: paths, ids, hashes, speeds, times and scores.
MASKED = re.compile(
    r"/[\w./-]*/(?=\w)|\d+(?:\.\d+)?[MG]iB|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|\d{8}-\d{6}|[0-9a-f]{12,}"
    r"|\b[\d,]+ examples/s|\d[\d,]{3,}|\d+\.\d+|pid \d+|\d+ cores|(?:AMD|Intel).*?\)"
    r"|(?<=\| )\d+(?= \|)"  # A whole number in a cell of a table.
)
IN_CI = ("own-program", "your-table")
IN_CONTAINERS = re.compile(r"--backend docker|jobs/box")
END = "the block has ended:"
# What stands for a reader's own names in the README. A line that would send something only shows
# what it would send.
EXAMPLES = {
    "@sha256:...": f"@sha256:{'0' * 64}",
    "--wait": "--dry-run",
    "PROJECT": "my-project",
    "BUCKET": "my-bucket",
}


def mask(line):
    return " ".join(MASKED.sub("#", line).split())


def images(size):
    """Returns the digits of scikit-learn as images of this width, and their labels."""
    digits = load_digits()
    pixels = np.kron(digits.images * 15, np.ones((1, size // 8, size // 8))).astype(np.uint8)
    margin = size - pixels.shape[1]
    return np.pad(pixels, ((0, 0), (0, margin), (0, margin))), digits.target.astype(np.uint8)


def write_mnist(folder):
    pixels, labels = images(28)
    for name, part in (("train", slice(0, 1500)), ("t10k", slice(1500, None))):
        for kind, values in (("images-idx3", pixels[part]), ("labels-idx1", labels[part])):
            (folder / f"{name}-{kind}-ubyte").write_bytes(idx_bytes(values))


def write_cifar10(folder):
    pixels, labels = images(32)
    rows = np.repeat(pixels.reshape(len(pixels), 1, -1), 3, axis=1).reshape(len(pixels), -1)
    records = np.concatenate([labels[:, None], rows], axis=1)
    files = [f"data_batch_{number}.bin" for number in range(1, 6)] + ["test_batch.bin"]
    for name, part in zip(files, np.array_split(records, 6), strict=True):
        (folder / name).write_bytes(part.tobytes())
    (folder / "batches.meta.txt").write_text("\n".join(f"class{n}" for n in range(10)))


def write_taxi(folder: pathlib.Path) -> None:
    run_python("examples/make_taxi_sample.py", folder / "trips.csv", "--rows", 15002)


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Returns flags that name small files, by the flags of a page that they take the place of."""
    texts = {}
    for name, write in (("mnist", write_mnist), ("cifar10", write_cifar10), ("taxi", write_taxi)):
        folder = tmp_path_factory.mktemp(name)
        write(folder)
        text = "--dataset taxi --source data/trips.csv" if name == "taxi" else f"--dataset {name}"
        texts[text] = f"--dataset {name} --source {folder}"
    return texts


@pytest.fixture
def shell(tmp_path):
    """Returns a function that runs commands in one shell, and returns what they print."""
    folder = tmp_path / "clone"
    folder.mkdir()
    for name in ("clusters", "deploy", "examples", "gates", "pipelines", "studies"):
        (folder / name).symlink_to(ROOT / name)
    (folder / ".venv").symlink_to(sys.prefix)
    process = start("bash", cwd=folder, stdin=subprocess.PIPE)

    def run(commands):
        process.stdin.write(f"{commands}\necho '{END}' $?\n")
        process.stdin.flush()
        lines = []
        for line in process.stdout:
            if line.startswith(END):
                assert line.split()[-1] == "0", f"{commands}\n{''.join(lines)}"
                return lines
            lines.append(line)
        raise AssertionError(f"the shell has ended: {lines}")

    yield run
    process.kill()
    process.wait()


def assert_printed(expected, printed):
    """Checks that the lines were printed in their order, and others only for `...`."""
    rest, may_skip = [mask(line) for line in printed if line.strip()], True
    for line in filter(str.strip, expected.splitlines()):
        if line.strip() == "...":
            may_skip = True
            continue
        assert mask(line) in (rest if may_skip else rest[:1]), f"{line}\nof:\n{''.join(printed)}"
        rest, may_skip = rest[rest.index(mask(line)) + 1 :], False


def blocks(page, sources):
    """Returns the commands of each block of a page, on the small files, and what they print."""
    text = page.read_text()
    for flags, small in sources.items():
        text = text.replace(flags, small)
    return BLOCKS.findall(text)


def marks(page):
    """Returns where a page is run: in CI, with an engine, or else by `make test-slow`."""
    marks = [pytest.mark.pipeline if page.parent.name in IN_CI else pytest.mark.slow]
    if any(IN_CONTAINERS.search(commands) for commands, _ in BLOCKS.findall(page.read_text())):
        marks.append(pytest.mark.docker)
    return marks


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=f"{page.parent.name}-{page.stem}", marks=marks(page)) for page in PAGES],
)
def test_commands_print_what_page_says(page, shell, sources):
    """Blocks with containers are run where the image is."""
    inspected = shell(f"docker image inspect {DEFAULT_IMAGE} && echo THERE || true")
    for commands, expected in blocks(page, sources):
        if "THERE\n" in inspected or not IN_CONTAINERS.search(commands):
            assert_printed(expected, shell(commands))


@pytest.mark.slow
def test_running_page_commands_work(shell, tmp_path):
    package = tmp_path / "clone/src/mytrainer"
    package.mkdir(parents=True)
    (package / "task.py").write_text("import os; print(os.environ['TF_CONFIG'])")
    text = (ROOT / "docs" / "RUNNING.md").read_text()
    # Those of runs of the pipeline, which have names to be filled in, are in tests/pipelines.
    for command in re.findall(r"^\.venv/bin/python -m .*$", text, re.MULTILINE):
        # Of a job that has ended there is nothing to stop, which is a mistake of the user's.
        shell(f"{command} || [ $? = 2 ]" if "--stop" in command else command)


@pytest.mark.pipeline
def test_readme_commands_work_as_written(shell, tmp_path):
    """All but those with containers, and the server: see tests/docker."""
    text = (ROOT / "README.md").read_text()
    for name, example in EXAMPLES.items():
        text = text.replace(name, example)
    for line in re.findall(r"^\.venv/bin/python.*", text, re.MULTILINE):
        if not re.search("(?<!-)docker|serve", line):
            shell(line)
    evaluation = json.loads((tmp_path / "clone/eval/d/evaluation.json").read_text())
    assert evaluation["metrics"]["accuracy"] >= 0.9  # 300 steps on parameter servers
    summary = max((tmp_path / "clone/runs").glob("*/summary.json"))
    assert json.loads(summary.read_text())["status"] == "succeeded"


@pytest.mark.slow
def test_notebook_runs(shell):
    notebook = json.loads((ROOT / "examples" / "notebook" / "steps.ipynb").read_text())
    cells = ["".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "code"]
    script = "\n".join(["cat > cells.py << 'END'", *cells, "END", ".venv/bin/python cells.py"])
    printed = "".join(shell(script))
    assert "done after" in printed and "Traceback" not in printed
