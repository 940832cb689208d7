"""A SavedModel that was loaded, with what it takes.

model = Model.load("job/model")
model.signatures["raw"](fare=tf.constant(["12.5"]))["probabilities"]      # [1, classes]
"""

from __future__ import annotations

import codecs
import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Self

import tensorflow as tf

from common import provenance
from common.errors import UserError
from common.manifest import Feature
from trainer import export


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Model:
    """An exported model.

    Attributes:
      directory: Where it was loaded from.
      loaded: What TensorFlow has loaded; without it the signatures have no variables.
      signatures: Functions by name, each from inputs [N, ...] by name to answers [N, ...] by name.
      columns: Of the table that it takes; none of images.
    """

    directory: str
    loaded: Any
    signatures: Mapping[str, Any]
    columns: Sequence[Feature]

    @classmethod
    def load(cls, directory: str) -> Self:
        """Loads a model.

        Raises:
          UserError: If there is none, or it cannot be read.
        """
        loaded = export.load(directory)
        _, columns = provenance.taken_by(directory)
        return cls(directory=directory, loaded=loaded, signatures=loaded.signatures, columns=columns)

    def require(self, signature: str, wanted: str, names: Collection[str] = ()) -> None:
        """Raises a `UserError` unless there is a signature, of inputs with these names if they are given.

        Args:
          signature: Its name.
          wanted: What it is to take, in words.
          names: Of inputs.
        """
        takes = {name: sorted(f.structured_input_signature[1]) for name, f in self.signatures.items()}
        if signature not in takes or (names and takes[signature] != sorted(names)):
            listed = "; ".join(f"{name} of {', '.join(inputs)}" for name, inputs in takes.items())
            raise UserError(f"{self.directory} does not take {wanted}; its signatures are {listed}")


def refusal(error: tf.errors.InvalidArgumentError) -> str:
    """Returns why a model refuses its inputs: the last line of TensorFlow's report that is no place in the graph."""
    line = str(error).split("\n\t")[0].splitlines()[-1]
    text = line.removeprefix("assertion failed: [").removesuffix("]")
    # An assertion escapes line breaks, and what is not ASCII.
    return " ".join(codecs.escape_decode(text.encode())[0].decode(errors="replace").split())
