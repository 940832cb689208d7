"""Words of a table's texts, for models of the user's own.

    words = keras.layers.TextVectorization(
        vocabulary=vocabulary(manifest, "comment"), output_sequence_length=50
    )

The converter counts them in the training split and stores them in the manifest, so that every
replica, a resumed job and the export use the same.
"""

from common.errors import UserError
from common.manifest import Manifest


def vocabulary(manifest: Manifest, column: str, size: int | None = None) -> list[str]:
    """Returns the most frequent words of a column's texts in the training split.

    They are sorted by frequency, most frequent first, and then by their bytes. They have the form
    in which `keras.layers.TextVectorization` looks words up; it adds two words of its own, for
    padding and for unknown words.

    Args:
      manifest: Manifest of the table.
      column: Name of the column.
      size: Number of words at most; None for all that the converter has kept.

    Raises:
      UserError: If there is no such column, or its words were not counted.
    """
    for encoding in (*manifest.deep, *manifest.wide):
        if encoding.kind == "words" and encoding.columns == (column,):
            return list(map(str, encoding.vocabulary or ()))[:size]
    raise UserError(
        f"dataset {manifest.name!r} has no words of {manifest.feature(column).name}; convert it "
        f"with {{column: {column}, words: 10000}} among the inputs of its schema"
    )
