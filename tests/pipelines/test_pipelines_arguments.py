import pathlib
import shutil

import grimp
import pytest
import trips

from components.convert.step import CODE, code_digest, locate
from components.train.cluster.lookup import load_cluster
from pipelines import cloud_options, run, submit
from pipelines.arguments import DEFAULT_CLUSTER, pipeline_arguments
from tests.errors import user_error
from tests.root import ROOT

CLUSTER = load_cluster(DEFAULT_CLUSTER)
FILES = {"TYPO", "SCHEMA", "RANGE"}  # That flags may name.
STEP = "components.convert"


def test_cache_covers_all_conversion_code():
    """Each file of the step, and whatever it imports of the project, is in the digest."""
    graph = grimp.build_graph("common", "components", "trainer", cache_dir=None)
    modules = graph.find_descendants(STEP) | graph.find_upstream_modules(STEP, as_package=True)
    imported = {ROOT / f"{name.replace('.', '/')}.py" for name in modules}
    files = {*(ROOT / "components" / "convert").rglob("*"), *filter(pathlib.Path.exists, imported)}
    assert {path for path in files if "__pycache__" not in path.parts} <= {
        path for pattern in CODE for path in ROOT.glob(pattern)
    }


def test_code_digest_changes_with_files(tmp_path):
    code = tmp_path / "components/convert/sources/a.py"
    code.parent.mkdir(parents=True)
    digests = []
    for content in ("1", "2"):
        code.write_text(content)
        digests.append(code_digest(tmp_path))
    code.with_suffix(".pyc").touch()
    assert code_digest(tmp_path) == digests[1]
    code.rename(code.with_name("b.py"))
    assert len({*digests, code_digest(tmp_path)}) == 3


def arguments(*flags):
    """Returns the arguments of a run."""
    return pipeline_arguments(run.KEYS.read(run._parser().parse_args(flags)), CLUSTER, ())


def test_seeds_reach_one_step_each():
    plain = arguments()
    for setting, name in (("seed=7", "trainer_args"), ("split_seed=7", "convert_args")):
        seeded = arguments(f"--set={setting}")
        assert [each for each in plain if seeded[each] != plain[each]] == [name]
    assert arguments("--set=split_seed=0") == plain  # The same key of the cache.


def test_schema_decides_name_of_dataset(tmp_path):
    files = trips.write(tmp_path)
    flags = ["--dataset=csv", f"--source={files['source']}"]
    text = pathlib.Path(files["schema"]).read_text()
    schemas = text, text.replace("made up", "elsewhere")
    assert len({locate("runs", flags, schema) for schema in schemas}) == 2


def test_repeated_source_adds_to_others():
    line = ["--source", "a", "--source", "b", "c"]
    assert run.KEYS.read(run._parser().parse_args(line)).source == ("a", "b", "c")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--dataset", "mnits"], "unknown dataset 'mnits'; did you mean 'mnist'?"),
        (["--cluster", "TYPO"], "top level: unknown key 'chef'; did you mean 'chief'?"),
        (["--dataset", "csv", "--schema", "SCHEMA"], "needs --source"),
        (["--", "--job-dir", "x"], "come from the pipeline"),
        (["--", "--no-such-flag"], "--no-such-flag"),
        (["--", "--strategy", "mirrored"], "the cluster file says multi_worker_mirrored"),
        (["--name", "Not/A/Name"], "model name 'Not/A/Name'"),
        (
            ["--dataset", "csv", "--schema", "SCHEMA", "--source=.", "--threshold=mae=1"],
            "(known: accuracy, auc, loss)",
        ),
        (["--gate", "RANGE"], "a threshold of accuracy: 97 is not from 0 to 1"),
        (["--runs-dir", "gs://bucket/runs"], "--runs-dir: 'gs://bucket/runs' is not a path"),
        (["--set", "predict=rows.csv"], "predict: --source /"),
        (["--registry", "/proc/registry"], "cannot write --registry /proc/registry: No such file"),
        (["--runner", "docker", "--image", "x"], "start Docker, or use --runner subprocess"),
        (["--model=nowhere:net"], "No module named 'nowhere'"),
        (["--model=own_models:functional", "--", "--widht=3"], "unknown option 'widht'"),
    ],
)
def test_bad_input_makes_nothing(refused, monkeypatch, tmp_path, flags, message):
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "trainer"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    (tmp_path / "typo").write_text("strategy: one_device\nchef: {}\n")
    (tmp_path / "range").write_text("thresholds: {accuracy: 97}")
    shutil.copy(ROOT / "components/convert/schemas/taxi.yaml", tmp_path / "schema")
    flags = [str(tmp_path / flag.lower()) if flag in FILES else flag for flag in flags]
    where = ["--runs-dir", tmp_path / "runs", "--registry", tmp_path / "registry"]
    assert message in refused(run.main, *where, *flags)
    assert {path.name.upper() for path in tmp_path.iterdir()} == FILES


def read(*words):
    return cloud_options.KEYS.read(submit._parser().parse_args(list(map(str, words))))


@pytest.fixture
def file(tmp_path):
    return tmp_path / "run.yaml"


def test_flags_win_over_settings_over_file(file):
    file.write_text(
        """{source: [gs://b/a], project: one-project, location: here, train_steps: 5,
        fail_on_reject: true}"""
    )
    settings = ["--set", "location=there", "--set", "train_steps=6", "--set", "labels=[a=b]"]
    config = read("--config", file, *settings, "--source", "gs://b/c", "--train-steps", "7")
    assert (config.source, config.project) == (("gs://b/c",), "one-project")
    assert (config.location, config.train_steps, config.labels) == ("there", 7, ("a=b",))
    assert config.fail_on_reject and config.shards is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a", "is not a mapping; write 'key: value' of "),
        ("projekt: a", "unknown key 'projekt'; did you mean 'project'"),
        ("yes: true", "unknown key 'yes'"),
        ("project: [a, b]", "project: .* is not a text"),
        ("max_restarts: -1", "max_restarts: '-1' is not a whole number"),
        ("scheduling: SPO", "scheduling: unknown value 'SPO'; did you mean 'SPOT'"),
        ("project: a\nproject: b", "'project' stands there twice"),
    ],
)
def test_mistake_in_file_names_file(file, text, message):
    file.write_text(text)
    with user_error(f"run.yaml.*({message})"):
        read("--config", file)


def test_mistake_in_setting_is_shown():
    with user_error("--set shrds=1: .*did you mean 'shards'"):
        read("--set", "shrds=1")
