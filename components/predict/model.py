"""A loaded SavedModel, with what it takes.

model = Model("job/model")
model.inputs("raw")                       # {"fare": TensorSpec([None], tf.string)}
answers = model.ask("raw", {"fare": tf.constant(["12.5"])})
answers["probabilities"]                  # [1, classes]
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from common import provenance
from common.errors import UserError, first_line, unknown
from components.predict.options import ModelOptions
from components.register.register import find_version
from components.register.serving import VERSION
from trainer import export

_FAULT = re.compile(r"(.+) \(row (\d+)\)\n?")


class RefusalError(UserError):
    """A model refuses rows; the message is the first reason that it gives.

    Attributes:
      faults: What is wrong with each row at fault, by its number from 0; empty if the model does
        not say.
    """

    def __init__(self, error: tf.errors.InvalidArgumentError) -> None:
        # The reason is the last line of TensorFlow's message before the stack of the graph.
        line = str(error).split("\n\t")[0].strip().split("\n")[-1]
        text = line.removeprefix("assertion failed: [").removesuffix("]")
        # An assertion escapes line breaks and quotes.
        reasons = codecs.escape_decode(text.encode())[0].decode(errors="replace")
        super().__init__(first_line(reasons))
        # Of several faults of a row, the first counts.
        self.faults = {int(row): fault for fault, row in reversed(_FAULT.findall(reasons))}


class Model:
    """An exported model.

    Attributes:
      directory: Directory that it was loaded from.
      signatures: Functions by name, each from inputs [N, ...] by name to answers [N, ...] by name.
      columns: Columns of the table that it takes; none if it takes images, or if another program
        made it.
    """

    def __init__(self, directory: str) -> None:
        """Loads a model.

        Args:
          directory: Directory of the SavedModel, local or in a bucket; or the folder of a version
            on Vertex AI, which has the SavedModel in its folder `1`.

        Raises:
          UserError: If there is no SavedModel, or if it cannot be read.
          ConnectionError: If a store does not answer.
        """
        inner = f"{directory}/{VERSION}"
        self.directory = inner if tf.saved_model.contains_saved_model(inner) else directory
        # The loaded object keeps the variables of the signatures alive.
        self._loaded = export.load(self.directory)
        self.signatures: Mapping[str, Any] = self._loaded.signatures
        _, self.columns = provenance.taken_by(self.directory)

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

        Texts are bytes.

        Args:
          signature: Name of one of the model's signatures.
          inputs: All of its inputs, [N, ...] by name.

        Raises:
          RefusalError: If the model refuses the inputs.
          KeyError: If there is no such signature.
        """
        try:
            answers = self.signatures[signature](**inputs)
        except tf.errors.InvalidArgumentError as error:
            raise RefusalError(error) from None
        # TensorFlow gives them in another order in each process.
        return {name: answers[name].numpy() for name in sorted(answers)}


def find_model(options: ModelOptions) -> tuple[str, str]:
    """Returns the number of a version, and the directory of its SavedModel.

    For a model of `model_dir` the number is `none`, and the directory need not exist.

    Raises:
      UserError: If there is no such version, or its files are gone or cannot be read.
      ConnectionError: If Vertex AI or a store does not answer.
    """
    if options.model_dir:
        return "none", options.model_dir
    version = find_version(options.registry, options.name)
    return version.number, version.model_dir
