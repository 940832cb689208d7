"""A loaded SavedModel, with what it takes.

model = Model.load("job/model")
model.inputs("raw")                       # {"fare": TensorSpec([None], tf.string)}
answers = model.ask("raw", {"fare": tf.constant(["12.5"])})
answers["probabilities"]                  # [1, classes]
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
      directory: Directory that it was loaded from.
      loaded: The object that TensorFlow loaded. It keeps the variables of the signatures alive.
      signatures: Functions by name, each from inputs [N, ...] by name to answers [N, ...] by name.
      columns: Columns of the table that it takes; none if it takes images, or if another program
        made it.
    """

    directory: str
    loaded: Any
    signatures: Mapping[str, Any]
    columns: Sequence[Feature]

    @classmethod
    def load(cls, directory: str) -> Self:
        """Loads a model.

        Args:
          directory: Directory of the SavedModel, local or in a bucket; or the folder of a version
            on Vertex AI, which has the SavedModel in its folder `1`.

        Raises:
          UserError: If there is no SavedModel, or if it cannot be read.
          ConnectionError: If a store does not answer.
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
        """Returns the specs of a signature's inputs, [N, ...] each, by name.

        Raises:
          UserError: If there is no such signature.
        """
        if signature not in self.signatures:
            raise unknown("signature", signature, self.signatures)
        return self.signatures[signature].structured_input_signature[1]

    def ask(
        self, signature: str, inputs: Mapping[str, tf.Tensor | np.ndarray]
    ) -> dict[str, np.ndarray]:
        """Returns the answers of a signature, [N, ...] by name, in the order of their names.

        Args:
          signature: Name of one of the model's signatures.
          inputs: All of its inputs, [N, ...] by name.

        Raises:
          UserError: If the model refuses the inputs; the message is the model's reason.
          KeyError: If there is no such signature.
        """
        try:
            answers = self.signatures[signature](**inputs)
        except tf.errors.InvalidArgumentError as error:
            raise UserError(_refusal(error)) from None
        # TensorFlow gives them in another order in each process.
        return {name: answers[name].numpy() for name in sorted(answers)}

    def require(self, signature: str, wanted: str, names: Collection[str] = ()) -> None:
        """Checks that the model has a signature.

        Args:
          signature: Name of the signature.
          wanted: What it should take, in words for the message.
          names: Names of all of its inputs; empty if any will do.

        Raises:
          UserError: If there is no such signature, or if it has other inputs.
        """
        takes = {name: sorted(self.inputs(name)) for name in self.signatures}
        if signature not in takes or (names and takes[signature] != sorted(names)):
            listed = "; ".join(f"{name} of {', '.join(inputs)}" for name, inputs in takes.items())
            raise UserError(f"{self.directory} does not take {wanted}; its signatures are {listed}")


def _refusal(error: tf.errors.InvalidArgumentError) -> str:
    """Returns the reason for which a model refuses its inputs.

    That is the last line of TensorFlow's message before the stack of the graph.
    """
    line = str(error).split("\n\t")[0].strip().splitlines()[-1]
    text = line.removeprefix("assertion failed: [").removesuffix("]")
    # An assertion escapes line breaks, and what is not ASCII.
    return " ".join(codecs.escape_decode(text.encode())[0].decode(errors="replace").split())
