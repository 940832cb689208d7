"""Words of a table's texts, for models of the user's own.

    words = keras.layers.TextVectorization(vocabulary=vocabulary(manifest, "comment"), output_sequence_length=50)

The converter has counted them in the training split, and they stand in the manifest: so every replica, a resumed job and
the export have the same.
"""

from common.errors import UserError
from common.manifest import Manifest


def vocabulary(manifest: Manifest, column: str, size: int | None = None) -> list[str]:
    """The most frequent words of a column's texts in the training split, the most frequent first, equals by bytes.

    They are in the form in which `keras.layers.TextVectorization` looks them up, which adds its two
    words of its own: for nothing, and for any other. There are at most `size`, if that is less than
    the schema has asked for.

    Raises:
      UserError: If the words of that column were not counted.
    """
    for encoding in (*manifest.deep, *manifest.wide):
        if encoding.kind == "words" and encoding.columns == (column,):
            return list(encoding.vocabulary[:size])
    raise UserError(
        f"dataset {manifest.name!r} has no words of {manifest.feature(column).name}; convert it "
        "with "
        f"{{column: {column}, words: 10000}} among the inputs of its schema"
    )
