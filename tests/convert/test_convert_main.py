import re

import pytest

from tests.programs import run_python


@pytest.mark.cluster
def test_command_imports_nothing_heavy(tmp_path):
    code = (
        "import sys; from components.convert.__main__ import main\n"
        f"main(['--output', {str(tmp_path / 'out')!r}, '--shards=4']); print(*sys.modules)"
    )
    *splits, last, modules = run_python("-c", code).splitlines()
    assert splits[:3] == [
        "train: 1,307 examples in 4 shards",
        "validation: 136 examples in 4 shards",
        "test: 354 examples in 4 shards",
    ]
    assert re.search("digits is ready: 1,797 examples in 12 shards, 203,061 bytes; ", last)
    heavy = "tensorflow keras kfp tensorflow_datasets absl requests rich pyarrow google.protobuf"
    assert "numpy" in modules.split() and not {*modules.split()} & {*heavy.split()}


@pytest.mark.parametrize(
    ("flags", "message"),
    {
        "--dataset fasion_mnist": "did you mean 'fashion_mnist'",
        "--dataset idx": "'idx' needs --source PATH",
        "--source .": ".: has no train-images-idx3-ubyte",
        "--dataset mnist --source docs tests": "'mnist' takes one --source PATH, a directory or",
        "--dataset csv --source README.md --schema no.yaml": "no.yaml: cannot be read",
        "--dataset taxi --source docs": "docs: holds no *.csv",
        "--dataset tfds:mnist --source gs://bucket/mnist": "/gcs/bucket/mnist: no such",
        "--shards 1000000000": "--shards: '1000000000' is not a whole number",
    }.items(),
)
def test_wrong_flags_leave_nothing(tmp_path, fails, flags, message):
    assert message in fails("--output", tmp_path / "a" / "b", *flags.split())
    assert not list(tmp_path.iterdir())
