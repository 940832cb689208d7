from __future__ import annotations

import argparse
import gzip
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.train.cluster.cluster_file import Cluster
from pipelines.arguments import DEFAULT_CLUSTER, add_flags, cache_key, pipeline_arguments

CLUSTER = Cluster.load(DEFAULT_CLUSTER)
seeds = st.integers(0, 2**32 - 1)


@pytest.fixture
def idx_source(tmp_path):
    directory = tmp_path / "source"
    directory.mkdir()
    images = struct.pack(">4B3I", 0, 0, 8, 3, 20, 4, 4) + bytes(20 * 16)
    labels = struct.pack(">4BI", 0, 0, 8, 1, 20) + bytes(range(10)) * 2
    (directory / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(images))
    (directory / "train-labels-idx1-ubyte").write_bytes(labels)
    return directory


def test_an_edited_source_is_not_taken_from_the_cache(idx_source):
    before = cache_key("idx", str(idx_source))
    assert cache_key("idx", str(idx_source)) == before
    labels = idx_source / "train-labels-idx1-ubyte"
    labels.write_bytes(labels.read_bytes()[:-1] + b"\x00")
    assert cache_key("idx", str(idx_source)) != before


@given(st.tuples(seeds, seeds), st.tuples(seeds, seeds))
def test_the_seed_is_the_trainers_alone_and_the_split_seed_the_converters(seed, split_seed):
    parser = argparse.ArgumentParser()
    add_flags(parser, cluster=DEFAULT_CLUSTER)

    def arguments(seed=0, split_seed=0):
        args = parser.parse_args(["--seed", str(seed), "--split-seed", str(split_seed)])
        return pipeline_arguments(args, CLUSTER, "")

    def different(one, other):
        return {name for name in one if one[name] != other[name]}

    assert different(*map(arguments, seed)) == ({"trainer_args"} if seed[0] != seed[1] else set())
    one, other = (arguments(split_seed=value) for value in split_seed)
    assert different(one, other) == ({"split_seed"} if split_seed[0] != split_seed[1] else set())
    assert (one["split_seed"], arguments()["split_seed"]) == (split_seed[0], 0)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--dataset", "mnits"], "unknown dataset 'mnits'; did you mean 'mnist'?"),
        (["--dataset", "idx"], "needs --source"),
        (["--dataset", "mnist", "--source", "EMPTY"], "train-images-idx3-ubyte"),
        (["--cluster", "clusters/local-sink.yaml"], "did you mean 'clusters/local-sync.yaml'?"),
        (["--min-accuracy", "97"], "not between 0 and 1"),
        (["--split-seed", "-1"], "--split-seed -1"),
        (["--shards", "0"], "--shards 0"),
        (["--validation-fraction", "1"], "--validation-fraction 1"),
        (["--model", "cnm"], "unknown --model 'cnm'; did you mean 'cnn'?"),
        (["--runner", "docker"], "needs --image"),
        (["--", "--learning-rate", "-3"], "not a number greater than 0"),
        (["--train-steps", "5", "--train-epochs", "2"], "either --train-steps or --train-epochs"),
        (["--train-steps", "0"], "not a whole number of at least 1"),
        (["--", "--job-dir", "x"], "come from the pipeline"),
        (["--", "--no-such-flag"], "--no-such-flag"),
        (["--", "--strategy", "mirrored"], "--strategy mirrored: the cluster file says multi_worker_mirrored"),
        (["--cluster", "STANDARD_1", "--", "--strategy", "mirrored"], "is for one machine, and STANDARD_1 has workers"),
        (["--cluster", "STANDARD_1", "--", "--sync", "--strategy", "parameter_server"], "leave one of the two out"),
        (["--name", "Not/A/Name"], "model name 'Not/A/Name'"),
    ],
)
def test_bad_input_exits_with_2_before_anything_is_made(refused_run, tmp_path, flags, message):
    (tmp_path / "empty").mkdir()
    flags = [str(tmp_path / "empty") if flag == "EMPTY" else flag for flag in flags]
    where = ["--runs-dir", tmp_path / "runs", "--registry", tmp_path / "registry"]
    assert message in refused_run(*where, *flags)
    assert [p.name for p in tmp_path.iterdir()] == ["empty"]


def test_a_cluster_file_with_a_typo_is_refused_with_the_nearest_key(command, tmp_path):
    file = tmp_path / "typo.yaml"
    file.write_text("strategy: one_device\nchef: {}\n")
    done = command("pipelines/run.py", "--cluster", file, "--runs-dir", tmp_path / "runs")
    assert done.returncode == 2
    assert "chef" in done.stderr
    assert "chief" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()
