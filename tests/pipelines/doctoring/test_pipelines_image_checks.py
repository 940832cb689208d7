"""What an image has to have; the tests marked `docker` run them in the real one."""

import sys

import pytest

from pipelines.doctoring import image_checks, machine_checks
from pipelines.doctoring.findings import FAILED, OK, WARNING


@pytest.mark.parametrize(
    ("version", "status"),
    [((2, 7, 18), FAILED), ((3, 10, 13), FAILED), ((3, 11, 0), OK), ((3, 13, 9), OK), ((3, 14, 0), FAILED)],
)
def test_only_the_pythons_of_pyproject_are_right(monkeypatch, version, status):
    monkeypatch.setattr(sys, "version_info", version)
    found = machine_checks.python()
    assert found.status == status
    assert ".".join(map(str, version)) in found.meaning


def test_modules_that_cannot_be_imported_are_named_and_the_others_still_tried(monkeypatch, tmp_path):
    package = tmp_path / "doctored"
    (package / "inner").mkdir(parents=True)
    for name, text in {"__init__": "", "a": "import no_such_library", "inner/__init__": "1 / 0", "z": ""}.items():
        (package / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(image_checks, "PACKAGES", ("doctored",))
    found = image_checks.modules()
    assert found.status == FAILED
    assert found.meaning.startswith("2 of 3 modules cannot be imported: doctored.a (ModuleNotFoundError: No module")
    assert "doctored.inner (ZeroDivisionError" in found.meaning and "doctored.z" not in found.meaning


def test_an_image_says_what_it_is(monkeypatch):
    monkeypatch.setenv("CODE_VERSION", "0123abc")
    assert image_checks.version().meaning.startswith("0123abc, TensorFlow 2.")
    monkeypatch.delenv("CODE_VERSION")
    assert image_checks.version().status == WARNING


@pytest.mark.parametrize(("free_gb", "status"), [(2, WARNING), (50, OK)])
def test_little_room_on_the_disk_is_told_before_there_is_none(monkeypatch, free_gb, status):
    monkeypatch.setattr(machine_checks.shutil, "disk_usage", lambda place: type("Usage", (), {"free": free_gb * 1e9}))
    assert machine_checks.disk().status == status


def test_a_disk_that_cannot_be_written_is_told(monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "nowhere"))
    found = machine_checks.disk()
    assert found.status == FAILED and found.meaning.startswith(f"{tmp_path / 'nowhere'} cannot be written")


@pytest.mark.parametrize(("free_gb", "status"), [(1.5, WARNING), (8, OK)])
def test_little_memory_is_told(monkeypatch, free_gb, status):
    monkeypatch.setattr("common.machine.available_bytes", lambda: free_gb * 1e9)
    assert machine_checks.memory().status == status
