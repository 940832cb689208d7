"""Fixtures that tests of several folders share."""

import gc
import os
import shutil
import signal
import subprocess

import pytest
import trips
from hypothesis import HealthCheck, settings

from common.cli import run_cli
from common.manifest import Manifest
from common.storage.local import LocalStorage
from components.convert.options import Options
from tests.cloud.objects import Objects
from tests.rides import convert_quietly

pytest_plugins = ["saved_models", "tests.cloud.fixtures", "tests.kubernetes.fixtures"]

# A machine that is busy with something else is no failure, hence no deadline. A fixture may serve
# all examples of a test. `make test-slow` takes many.
shared = {"deadline": None, "suppress_health_check": [HealthCheck.function_scoped_fixture]}
settings.register_profile("check", max_examples=25, **shared)
settings.register_profile("many", max_examples=500, **shared)
settings.load_profile("check")


# Under nohup or in the background, what tests start would ignore them too.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Leaves what the imports made out of later searches for garbage, a tenth of all the time."""
    gc.disable()
    result = yield
    gc.freeze()
    gc.enable()
    return result


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """One more than there are cores: tests wait a good part of their time."""
    return (os.cpu_count() or 1) + 1


@pytest.fixture
def bytes_read(monkeypatch):
    """Returns a function for the bytes read so far from local files and stores of this machine."""
    sizes = []

    def open_counted(*arguments):
        raw = open_file(*arguments)
        readinto = raw.readinto

        def count(buffer):
            sizes.append(readinto(buffer))
            return sizes[-1]

        raw.readinto = count
        return raw

    def read_counted(*arguments):
        answer = read_object(*arguments)
        sizes.append(len(answer[1]))
        return answer

    open_file, read_object = LocalStorage.open, Objects.read
    monkeypatch.setattr(LocalStorage, "open", open_counted)
    monkeypatch.setattr(Objects, "read", read_counted)
    return lambda: sum(sizes)


@pytest.fixture
def refused(capsys):
    """Runs a command's `main`, sees it exit with 2 and one line, and returns the line."""

    def run(main, *arguments):
        capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            run_cli(lambda: main([str(argument) for argument in arguments]))
        err = capsys.readouterr().err
        assert stopped.value.code == 2, err
        assert err.startswith("error: ") and err.count("\n") == 1, err
        return err

    return run


@pytest.fixture(scope="session")
def container():
    """Returns the words before a command that run it in a pid namespace, as in a container."""
    words = ["unshare", "--pid", "--fork", "--kill-child"]
    if not shutil.which("unshare") or subprocess.call([*words, "true"], stderr=subprocess.DEVNULL):
        pytest.skip("pid namespaces cannot be made here")
    return words


@pytest.fixture(scope="session")
def digits(tmp_path_factory):
    """Returns the directory of the embedded digits, converted to three training shards."""
    directory = tmp_path_factory.mktemp("data") / "digits"
    convert_quietly(Options(output=str(directory), shards=3))
    return directory


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """Returns the directory of the made-up trips, converted."""
    return trips.make(tmp_path_factory.mktemp("trips"))


@pytest.fixture
def table(data):
    """Returns the manifest of the trips."""
    return Manifest.load(data)
