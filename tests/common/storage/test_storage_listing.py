"""What there is, here and in a bucket alike."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import UserError
from common.storage.files import crc32c
from common.storage.listing import deleted, found, listed


def test_a_folder_is_what_lies_below_it_and_not_what_begins_with_its_name(disk, place):
    for name, content in {"a/one": b"1", "a/sub/two": b"22", "a.csv": b"333", "ab/three": b"4444"}.items():
        (disk / name).parent.mkdir(parents=True, exist_ok=True)
        (disk / name).write_bytes(content)
    assert [(file.path, file.num_bytes) for file in listed(f"{place}/a")] == [
        (f"{place}/a/one", 1),
        (f"{place}/a/sub/two", 2),
    ]
    assert listed(f"{place}/a/") == listed(f"{place}/a") and len(listed(place)) == 4
    assert listed(f"{place}/a.csv") == [found(f"{place}/a.csv")] and listed(f"{place}/none") == []
    assert found(f"{place}/a") is None and found(f"{place}/a.cs") is None
    if place.startswith("gs:"):
        assert found(f"{place}/a.csv").crc32c == crc32c(b"333") and len(listed("gs://demo")) == 4


def test_a_file_that_was_written_again_has_another_version(disk, place):
    (disk / "a").write_bytes(b"1")
    before = found(f"{place}/a")
    assert found(f"{place}/a") == before
    (disk / "a").write_bytes(b"2")
    assert found(f"{place}/a").version != before.version


@pytest.mark.cluster
def test_more_objects_than_one_answer_takes_are_listed_once_each(bucket):
    names = [f"{number % 3:02}/{number}" for number in range(1100)]
    for name in names:
        (bucket / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (bucket / "data" / name).write_bytes(b"")
    assert [file.path for file in listed("gs://demo/data")] == sorted(f"gs://demo/data/{name}" for name in names)


def test_what_is_deleted_is_gone_and_may_have_been_gone_before(disk, place):
    (disk / "a").write_bytes(b"1")
    (disk / "b").write_bytes(b"1")
    deleted([f"{place}/a", f"{place}/none"])
    assert [file.path for file in listed(place)] == [f"{place}/b"]


def test_a_file_that_goes_while_its_folder_is_listed_is_passed_over_and_a_link_to_nowhere_is_not(tmp_path, monkeypatch):
    (tmp_path / "there").write_bytes(b"1")
    monkeypatch.setattr(os, "walk", lambda place, **_: [(place, [], ["gone", "there"])])
    assert [file.path for file in listed(str(tmp_path))] == [f"{tmp_path}/there"]
    (tmp_path / "gone").symlink_to("nowhere")
    assert [(file.path, bool(file.version)) for file in listed(str(tmp_path))] == [
        (f"{tmp_path}/gone", False),
        (f"{tmp_path}/there", True),
    ]


@given(links=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=4))
def test_linked_folders_are_listed_once_or_refused(tmp_path_factory, links):
    """The files of all folders that can be reached are listed, unless links lead to one of them twice."""
    root, ways = tmp_path_factory.mktemp("links"), [(0, 1), (2, 3), *links]
    folders = [root / name for name in ("source", "source/a", "elsewhere", "elsewhere/b")]
    for i, folder in enumerate(folders):
        folder.mkdir()
        (folder / str(i)).touch()
    for i, (start, stop) in enumerate(links):
        (folders[start] / f"link {i}").symlink_to(folders[stop])
    reached = {0}
    for _ in folders:
        reached |= {stop for start, stop in ways if start in reached}
    if sorted([0, *(stop for start, stop in ways if start in reached)]) == sorted(reached):
        assert {os.path.basename(file.path) for file in listed(str(folders[0]))} == set(map(str, reached))
    else:
        with pytest.raises(UserError, match=r"is the same folder as "):
            listed(str(folders[0]))
