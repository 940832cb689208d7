import dataclasses
import json
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from common.errors import UserError
from common.manifest import Encoding
from components.convert.pieces import Piece
from components.convert.tables import expressions
from components.convert.tables.schema import Column, Input, Label, Schema
from components.convert.tables.table_block import TableBlock
from components.convert.tables.table_source import TableSource

COLUMNS = {
    column.name: column
    for column in (
        Column(name="age", header="age", type="int", default=7),
        Column(name="debt", header="debt", type="int"),
        Column(name="said", header="said", type="string", default="é"),
        Column(name="fare", header="fare", type="float"),
    )
}
TYPES = {column.name: column.type for column in COLUMNS.values()}
SCHEMA = Schema(
    name="t",
    origin="t",
    columns=COLUMNS,
    label=Label(classes=("no", "yes"), condition=expressions.parse({"greater": ["fare", 1]}, TYPES, "label")),
    filter=expressions.parse({"greater": ["fare", 0]}, TYPES, "filter"),
    deep=(
        Input(encoding=Encoding(kind="numeric", columns=("fare",))),
        Input(encoding=Encoding(kind="vocabulary", columns=("age",)), vocabulary_size=2),
        Input(encoding=Encoding(kind="words", columns=("said",)), vocabulary_size=9),
    ),
    wide=(Input(encoding=Encoding(kind="vocabulary", columns=("said",)), vocabulary_size=1),),
    missing=("",),
    ignore_others=False,
    content={},
)
ROWS = [  # age, debt, said, fare
    (3, -1, "A b!", 1.5),
    (None, 5, None, 2.5),
    (3, 4, "A b!", -1.0),
    (300, 2, "b", 0.5),
    (7, 2, "long, long", 1.0),
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Made(TableSource):
    """Rows at hand; a piece is a range of them, read one at a time."""

    def batches(self, piece: Piece) -> Iterator[TableBlock]:
        for i in range(piece.start, piece.stop):
            columns = {name: pa.array([value]) for name, value in zip(COLUMNS, ROWS[i], strict=True)}
            columns |= {"said": pa.array([ROWS[i][2]], pa.large_string()), "age": pa.array([ROWS[i][0]], pa.int64())}
            batch = pa.RecordBatch.from_pydict(columns)
            yield TableBlock(columns=batch, path="t", positions=np.array([i]), locate="row {}".format)


def pieces(*ends: int) -> list[Piece]:
    return [
        Piece(split="train", start=a, stop=b, position=a, extent=b - a) for a, b in zip((0, *ends), ends, strict=False)
    ]


@pytest.mark.parametrize("ends", [(5,), (1, 3, 5), (0, 2, 5)])
def test_looks_at_pieces_give_vocabularies_of_kept_training_rows_and_room_for_all_that_is_kept(ends):
    source = Made.of(SCHEMA)
    assert source.looks
    looks = [source.look(piece, lambda positions: positions != 4) for piece in pieces(*ends)]
    settled = source.settled(json.loads(json.dumps(looks)))
    assert not settled.looks and settled.most == {"age": 300, "said": 10}  # and debts may be negative
    assert [encoding.vocabulary for encoding in settled.deep] == [None, (3, 7), ("b", "a", "é")]
    assert settled.wide[0].vocabulary == ("A b!",)
    with pytest.raises(UserError, match="column 'said' has no words in the training split"):
        source.settled([source.look(piece, lambda positions: positions < 0) for piece in pieces(*ends)])


def test_blocks_have_what_is_stored_and_count_what_is_left_out():
    blocks = list(Made.of(SCHEMA).blocks(*pieces(5)))
    assert [block.left_out for block in blocks] == [0, 0, 1, 0, 0]
    joined = {name: np.concatenate([b.columns[name] for b in blocks]) for name in ("age", "debt", "fare", "label")}
    assert {name: values.tolist() for name, values in joined.items()} == {
        "age": [3, 7, 300, 7],
        "debt": [-1, 5, 2, 2],
        "fare": [1.5, 2.5, 0.5, 1.0],
        "label": [1, 1, 0, 0],
    }
    assert [text for b in blocks for text in b.columns["said"].tolist()] == [b"A b!", "é".encode(), b"b", b"long, long"]
    assert joined["fare"].dtype == np.float32 and joined["debt"].dtype == joined["label"].dtype == np.int64
    assert np.concatenate([b.positions for b in blocks]).tolist() == [0, 1, 3, 4]
    for name in ("age", "said"):
        assert np.concatenate([b.missing[name] for b in blocks]).tolist() == [False, True, False, False]
    assert not Made.of(dataclasses.replace(SCHEMA, deep=(), wide=())).looks
