import ast
import pathlib
import re
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.convert.options import Options as ConvertOptions
from components.evaluate.options import Options as EvaluateOptions
from components.register.registry import check_name
from components.train.cluster.lookup import load_cluster
from pipelines import run
from pipelines.arguments import DEFAULT_CLUSTER, pipeline_arguments
from pipelines.config import Config
from pipelines.local.cache import CODE, code_digest

ROOT = pathlib.Path(__file__).parents[2]
CLUSTER = load_cluster(DEFAULT_CLUSTER)
GIVEN = {"TYPO", "SCHEMA", "RANGE"}  # files that flags may name


def imported_by(paths: list[pathlib.Path]) -> set[pathlib.Path]:
    """Files of the project that these import, inside functions too, and so on."""
    found, new = set(), set(paths)
    while new:
        found |= new
        nodes = [
            node for path in new for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        ]
        names = {
            alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names
        }
        for node in (node for node in nodes if isinstance(node, ast.ImportFrom)):
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        files = {ROOT / (name.replace(".", "/") + ".py") for name in names}
        new = {path for path in files if path.exists()} - found
    return found


def test_another_conversion_code_is_not_taken_from_the_cache(tmp_path):
    """Whatever file of the step changes, in whatever room, or of what it imports of the trainer."""
    step = [
        path
        for path in (ROOT / "components" / "convert").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    ]
    imported = imported_by([path for path in step if path.suffix == ".py"])
    assert {path.parent.name for path in imported} >= {"common", "sources", "convert"}
    assert {*step, *imported} <= {path for pattern in CODE for path in ROOT.glob(pattern)}
    digests = set()
    code = tmp_path / "components/convert/sources/a.py"
    code.parent.mkdir(parents=True)
    for content in ("1", "2"):
        code.write_text(content)
        digests.add(code_digest(tmp_path))
    code.with_suffix(".pyc").touch()
    assert code_digest(tmp_path) in digests
    code.rename(code.with_name("b.py"))
    assert len({*digests, code_digest(tmp_path)}) == 3


def config(*flags: str) -> Config:
    """Keys of a run, given as flags or as `key=value` for --set."""
    words = [
        word for flag in flags for word in ([flag] if flag.startswith("-") else ["--set", flag])
    ]
    return run.KEYS.read(run._parser().parse_args(words))


def arguments(*flags: str, sources: tuple[str, ...] = ()) -> dict:
    return pipeline_arguments(config(*flags), CLUSTER, sources)


def test_the_seed_is_the_trainers_alone_and_the_split_seed_the_converters():
    plain = arguments()
    for setting, told in (("seed=7", "trainer_args"), ("split_seed=7", "convert_args")):
        found = arguments(setting)
        assert [name for name in plain if found[name] != plain[name]] == [told]
    assert arguments("split_seed=0") == plain  # the same key of the cache


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "shards": st.integers(1, 99_999),
            "validation_fraction": st.floats(0, 1, exclude_max=True),
            "test_fraction": st.floats(0, 1, exclude_max=True),
            "split_seed": st.integers(0, 2**64 - 1),
            "processes": st.integers(1, 1000),
        },
    ),
    st.fixed_dictionaries(
        {}, optional={"min_accuracy": st.floats(0, 1), "min_auc": st.floats(0, 1)}
    ),
    st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1).map("/".__add__),
        max_size=3,
    ),
)
def test_a_step_gets_the_options_that_the_front_door_was_given(convert, evaluate, sources):
    given = {**convert, **evaluate, "dataset": "taxi"}
    sources = [source for source in sources if "://" not in source]
    found = arguments(*(f"{name}={value}" for name, value in given.items()), sources=sources)
    source = sources[0] if len(sources) == 1 else tuple(sources) or None
    assert ConvertOptions.parse(found["convert_args"], "step", output="o") == ConvertOptions(
        **convert, dataset="taxi", source=source, output="o"
    )
    places = {"model_dir": "m", "data_dir": "d", "output": "o", "registry": "r", "name": "n"}
    assert EvaluateOptions.parse(found["evaluate_args"], "step", **places) == EvaluateOptions(
        **evaluate, **places
    )


@given(st.from_regex(r"[A-Z]\w*(/[\w.+-]+)?(:\d\.\d\.\d)?", fullmatch=True))
def test_default_name_is_valid(dataset):
    check_name(arguments(f"--dataset=tfds:{dataset}")["name"])


@pytest.mark.parametrize("split", [0, 1, 2])
def test_no_source_is_forgotten_however_it_is_given(split):
    names = ["a", "b", "c"]
    given = [["--source", *part] for part in (names[:split], names[split:]) if part]
    line = [word for part in given for word in part]
    for found in (
        run.KEYS.read(run._parser().parse_args(line)),
        ConvertOptions.parse(line, "test", output="o"),
    ):
        assert list(found.source) == names


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--dataset", "mnits"], "unknown dataset 'mnits'; did you mean 'mnist'?"),
        (["--cluster", "TYPO"], "top level: unknown key 'chef'; did you mean 'chief'?"),
        (["--dataset", "csv", "--schema", "SCHEMA"], "needs --source"),
        (["--gate", "TYPO"], "unknown key 'chef' (known: confidence, "),
        (["--output", "x"], "unrecognized arguments: --output"),
        (["--", "--job-dir", "x"], "come from the pipeline"),
        (["--", "--no-such-flag"], "--no-such-flag"),
        (
            ["--", "--strategy", "mirrored"],
            "--strategy mirrored: the cluster file says multi_worker_mirrored",
        ),
        (["--name", "Not/A/Name"], "model name 'Not/A/Name'"),
        (
            ["--threshold", "banana=1"],
            "unknown metric of a threshold 'banana' (known: accuracy, loss)",
        ),
        (
            ["--dataset", "csv", "--schema", "SCHEMA", "--source=.", "--threshold=mae=1"],
            "(known: accuracy, auc, loss)",
        ),
        (["--gate", "RANGE"], "a threshold of accuracy: 97 is not from 0 to 1"),
        (["--runs-dir", "runs[1]"], "runs[1]' for a pattern"),
        (["--runs-dir", "gs://bucket/runs"], "--runs-dir: 'gs://bucket/runs' is not a path"),
        (["--set", "predict=rows.csv"], "predict: --source /"),
        (
            ["--registry", "/proc/registry"],
            "cannot write --registry /proc/registry: No such file or directory",
        ),
    ],
)
def test_bad_input_exits_with_2_before_anything_is_made(
    refused, monkeypatch, tmp_path, flags, message
):
    monkeypatch.chdir(ROOT)
    (tmp_path / "typo").write_text("strategy: one_device\nchef: {}\n")
    (tmp_path / "range").write_text("thresholds: {accuracy: 97}")
    shutil.copy(ROOT / "components/convert/schemas/taxi.yaml", tmp_path / "schema")
    for name in GIVEN:
        flags = [flag.replace(name, str(tmp_path / name.lower())) for flag in flags]
    where = ["--runs-dir", tmp_path / "runs", "--registry", tmp_path / "registry"]
    assert message in refused(run.main, *where, *flags)
    assert {path.name.upper() for path in tmp_path.iterdir()} == GIVEN


def test_a_place_for_runs_that_cannot_be_written_is_told(refused, monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    line = refused(run.main, "--runs-dir", "/proc/runs", "--registry", tmp_path)
    assert "cannot write --runs-dir /proc/runs: No such file or directory" in line


def test_an_engine_that_does_not_answer_is_told_before_anything_is_made(
    refused, monkeypatch, tmp_path
):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    where = ["--runs-dir", tmp_path / "runs", "--registry", tmp_path / "registry"]
    line = refused(run.main, *where, "--runner", "docker", "--image", "x")
    assert "no container engine: " in line and "start Docker, or use --runner subprocess" in line
    assert not list(tmp_path.iterdir())


def test_the_page_of_a_run_links_to_nothing_that_is_not_there(monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(run, "_drive", lambda *_: 130)
    where = ["--runs-dir", str(tmp_path / "runs"), "--registry", str(tmp_path / "registry")]
    assert run.main(where) == 130
    (page,) = tmp_path.glob("runs/*/report.html")
    links = re.findall(r'href="([^"#:]+)"', page.read_text())
    assert links and all((page.parent / link).exists() for link in links)
