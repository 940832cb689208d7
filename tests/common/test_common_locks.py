import os

from common.locks import locked


def test_lock_file_opens_for_everybody(tmp_path):
    before = os.umask(0)
    try:
        with locked(tmp_path / ".lock") as descriptor:
            assert os.fstat(descriptor).st_mode & 0o777 == 0o666
    finally:
        os.umask(before)
