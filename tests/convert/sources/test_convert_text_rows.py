import pytest

from common.errors import UserError
from components.convert.sources.text_rows import check_quotes

BLOCK_BYTES = 1 << 23  # Files are read by blocks of so many bytes.


@pytest.mark.parametrize("shift", range(5))
@pytest.mark.parametrize(
    ("end", "fault"),
    [
        ('""b"\n"c"\n', None),
        ('" b"\n', "line 2: a quote in a value"),
        ('""b\n\n', "line 2: .*no end"),
    ],
)
def test_quotes_at_end_of_block(tmp_path, shift, end, fault):
    """A value that a block divides, wherever it does, is taken as in one piece."""
    path = tmp_path / "table.csv"
    start = b'a\n"'
    path.write_bytes(start + b"x" * (BLOCK_BYTES - len(start) - shift) + end.encode())
    if fault:
        with pytest.raises(UserError, match=fault):
            check_quotes(str(path), ",")
    else:
        assert check_quotes(str(path), ",")
