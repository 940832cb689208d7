import pathlib
import re
import subprocess
import sys

import pytest

from components.convert.__main__ import main

ROOT = pathlib.Path(__file__).parents[2]


def test_summary(tmp_path, capsys):
    assert main(["--output", str(tmp_path / "out"), "--shards", "4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [
        "train: 1,307 examples in 4 shards",
        "validation: 136 examples in 4 shards",
        "test: 354 examples in 4 shards",
    ]
    assert re.fullmatch(
        r".*digits is ready: 1,797 examples in 12 shards, 203,061 bytes; .* s, .* examples/s",
        lines[3],
    )


@pytest.mark.cluster
def test_imports_nothing_heavy(tmp_path):
    code = (
        "import runpy, sys\n"
        f"sys.argv = ['convert', '--output', {str(tmp_path / 'out')!r}]\n"
        "try: runpy.run_module('components.convert', run_name='__main__')\n"
        "except SystemExit as stopped: assert stopped.code == 0\n"
        "print(*sorted(name for name in sys.modules if '.' not in name), 'google.protobuf' in "
        "sys.modules)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    modules = run.stdout.splitlines()[-1].split()
    assert "numpy" in modules and modules[-1] == "False"
    heavy = {
        "tensorflow",
        "keras",
        "kfp",
        "tensorflow_datasets",
        "absl",
        "requests",
        "rich",
        "pyarrow",
    }
    assert not heavy & set(modules)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--dataset", "fasion_mnist"), "did you mean 'fashion_mnist'"),
        (("--dataset", "idx"), "'idx' needs --source DIR"),
        (("--source", "."), "'digits' is built in; leave out --source"),
        (
            ("--dataset", "mnist", "--source", "a", "b"),
            "--source a b: dataset 'mnist' takes one path, not 2",
        ),
        (
            ("--dataset", "csv", "--source", "README.md", "--schema", "no.yaml"),
            "no.yaml: cannot be read (No such file",
        ),
        (("--dataset", "taxi", "--source", "docs"), "docs: holds no *.csv or *.tsv files"),
        (
            ("--dataset", "tfds:mnist", "--source", "gs://bucket/mnist"),
            "gs://bucket/mnist: dataset 'tfds:mnist' is read from this machine; copy it, or mount "
            "the bucket",
        ),
        (
            ("--shards", "1000000000"),
            "--shards: '1000000000' is not a whole number of at least 1 and at most 99999",
        ),
    ],
)
def test_wrong_flags_leave_nothing(tmp_path, fails, flags, message):
    assert message in fails("--output", tmp_path / "a" / "b", *flags)
    assert not list(tmp_path.iterdir())
