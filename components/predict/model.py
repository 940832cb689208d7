"""A SavedModel that was loaded, with what it takes.

model = Model.load("job/model")
model.inputs("raw")                                                      # {"fare":
TensorSpec([None], tf.string)} model.ask("raw", {"fare": tf.constant(["12.5"])})["probabilities"]
   # [1, classes]
"""

from __future__ import annotations

import codecs
import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Self

import numpy as np
import tensorflow as tf

from common import provenance
from common.errors import UserError, unknown
from common.manifest import Feature
from components.register.serving import VERSION
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
        """Loads a model from its directory, or from the folder of a version on Vertex AI, in which that is `1`.

        Raises:
          UserError: If there is none, or it cannot be read.
        """
        inner = f"{directory}/{VERSION}"
        if tf.saved_model.contains_saved_model(inner):
            directory = inner
        loaded = export.load(directory)
        _, columns = provenance.taken_by(directory)
        return cls(
            directory=directory, loaded=loaded, signatures=loaded.signatures, columns=columns
        )

    def inputs(self, signature: str) -> Mapping[str, tf.TensorSpec]:
        """Returns what a signature takes, [N, ...] by name; a `UserError` if there is none of that name."""
        if signature not in self.signatures:
            raise unknown("signature", signature, self.signatures)
        return self.signatures[signature].structured_input_signature[1]

    def ask(
        self, signature: str, inputs: Mapping[str, tf.Tensor | np.ndarray]
    ) -> dict[str, np.ndarray]:
        """Returns the answers of a signature, [N, ...] by name; a `UserError` says why if it refuses the inputs."""
        try:
            answers = self.signatures[signature](**inputs)
        except tf.errors.InvalidArgumentError as error:
            raise UserError(_refusal(error)) from None
        return {name: values.numpy() for name, values in answers.items()}

    def require(self, signature: str, wanted: str, names: Collection[str] = ()) -> None:
        """Raises a `UserError` unless there is a signature, of inputs with these names if they are given.

        Args:
          signature: Its name.
          wanted: What it is to take, in words.
          names: Of inputs.
        """
        takes = {name: sorted(self.inputs(name)) for name in self.signatures}
        if signature not in takes or (names and takes[signature] != sorted(names)):
            listed = "; ".join(f"{name} of {', '.join(inputs)}" for name, inputs in takes.items())
            raise UserError(f"{self.directory} does not take {wanted}; its signatures are {listed}")


def _refusal(error: tf.errors.InvalidArgumentError) -> str:
    """Returns the reason for which a model refuses its inputs: the last line of TensorFlow's message that is no place in a graph."""
    line = str(error).split("\n\t")[0].strip().splitlines()[-1]
    text = line.removeprefix("assertion failed: [").removesuffix("]")
    # An assertion escapes line breaks, and what is not ASCII.
    return " ".join(codecs.escape_decode(text.encode())[0].decode(errors="replace").split())
