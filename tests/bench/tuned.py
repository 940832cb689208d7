"""The models of docs/MODELS.md, "Fine-tuning", as they stand there: a backbone of Keras' own, frozen and thawed."""

import pathlib
import re

_DOCUMENT = pathlib.Path(__file__).parents[2] / "docs" / "MODELS.md"
(_CODE,) = re.findall(
    r"`tuned.py`:\n\n```python\n(.*?)```", _DOCUMENT.read_text(encoding="utf-8"), re.DOTALL
)
exec(_CODE)
