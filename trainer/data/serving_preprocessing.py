"""Conversion of a table's values inside the exported model, as the converter has done it.

    serving_preprocessing(manifest, {"age": [31.0, nan], "paid": ["True", ""]})
    # {"age": 31 and the default, "paid": "true" and the default}
    columns, faults = parse_texts(manifest, {"age": ["31", "x"], "seen": ["2024-01-31", ""]})
    # faults: "", and the mistake in the second row

Training itself reads records that the converter has converted already.
"""

import functools
from collections.abc import Callable, Mapping

import tensorflow as tf

from common.manifest import Feature, Manifest
from common.spellings import (
    ABSENT,
    EITHER,
    FALSE,
    ISO_8601,
    KINDS,
    NUMBER,
    TRUE,
    WHOLE_NUMBER,
    marks,
)

_SHOWN = 40  # Number of characters of a wrong text that a message shows.
# Whole numbers of 64 bits that become 2**63 or -2**63 when they are rounded to float64.
_LARGEST = r"\s*(-?0*92233720368547(75[0-7]\d\d|7580[0-7])|-0*9223372036854775808)\s*"


@tf.autograph.experimental.do_not_convert
def serving_preprocessing(
    manifest: Manifest, columns: Mapping[str, tf.Tensor]
) -> dict[str, tf.Tensor]:
    """Returns columns of a table with defaults for missing values; those of images are unchanged.

    A value is missing if it is NaN, or one of the values that the schema lists as missing. The
    spellings of a boolean become `true` and `false`. Values that are converted already stay as they
    are.

    Args:
      manifest: Manifest of the dataset.
      columns: Model inputs by name, [N] for a table.

    Raises:
      tf.errors.InvalidArgumentError: When it runs, if a value without a default is missing, a float
        is infinite, or a boolean has another spelling. The converter refuses such rows, so that no
        model has learnt what they mean. The message names the column and the first such row.
    """
    if not manifest.is_table:
        return dict(columns)
    served = {}
    for name, values in columns.items():
        is_nan = (
            tf.math.is_nan(values) if values.dtype.is_floating else tf.zeros_like(values, tf.bool)
        )
        served[name], _, faults = _finish(manifest.feature(name), values, is_nan)
        for is_wrong, fault in faults:
            refuse(is_wrong, f"{name}: a value {fault}")
    return served


@tf.autograph.experimental.do_not_convert
def parse_texts(
    manifest: Manifest, texts: Mapping[str, tf.Tensor]
) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    """Returns the inputs of a model from the cells of a table, parsed as the converter does.

    Args:
      manifest: Manifest of the table.
      texts: Cells as in a CSV file, strings [N], for each of `manifest.source_columns` by name.

    Returns:
      The columns [N] by name; and the first mistake in each row, strings [N], empty for a correct
      row. The values of a row with a mistake are meaningless.
    """
    columns = {}
    faults = tf.zeros_like(next(iter(texts.values())))
    for feature in manifest.source_columns:
        name, kind, text = feature.name, feature.type or "", texts[feature.name]
        is_missing = _is_in(text, feature.missing or ())
        values, is_right = _PARSERS[kind](tf.where(is_missing, _EMPTY[kind], text))
        columns[name], is_missing, others = _finish(feature, values, is_missing)
        faults = _add_faults(faults, ~is_right, functools.partial(_no_kind, feature, text))
        for is_wrong, fault in others:
            faults = _add_faults(faults, is_wrong, functools.partial(str, f"{name}: {fault}"))
        for indicator in manifest.inputs:
            if indicator.indicates == name:
                columns[indicator.name] = tf.cast(is_missing, tf.int64)
    return columns, faults


def refuse(is_wrong: tf.Tensor, fault: tf.Tensor | str) -> None:
    """Adds an operation that fails if any row is wrong.

    Args:
      is_wrong: Mask of the wrong rows, bool [N].
      fault: Message; the number of the first wrong row, from 0, is added.

    Raises:
      tf.errors.InvalidArgumentError: When it runs, if any row is wrong.
    """
    row = tf.strings.as_string(tf.argmax(is_wrong))
    tf.debugging.Assert(~tf.reduce_any(is_wrong), [tf.strings.join([fault, " (row ", row, ")"])])


def _add_faults(
    faults: tf.Tensor, is_wrong: tf.Tensor, describe: Callable[[], tf.Tensor | str]
) -> tf.Tensor:
    """Returns the faults [N] of rows, with a new one for each wrong row that had none.

    Args:
      faults: Strings [N], empty for rows without a fault.
      is_wrong: Mask of wrong rows, bool [N].
      describe: Returns the new fault, one for all rows or one for each. It runs only if a row is
        wrong.
    """
    return tf.cond(
        tf.reduce_any(is_wrong),
        lambda: tf.where((faults == "") & is_wrong, describe(), faults),
        lambda: faults,
    )


def _no_kind(feature: Feature, texts: tf.Tensor) -> tf.Tensor:
    """Returns a message for each text, strings [N], that says that it is not of the column's type.

    The texts [N] are not examined; a message shows the first 40 characters of one.
    """
    shown = tf.strings.substr(
        tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8"), 0, _SHOWN, unit="UTF8_CHAR"
    )
    return tf.strings.join([f"{feature.name}: '", shown, f"' is no {KINDS[str(feature.type)]}"])


def _finish(
    feature: Feature, values: tf.Tensor, is_missing: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, list[tuple[tf.Tensor, str]]]:
    """Returns values as the dataset stores them, a mask of the missing ones, and the faults.

    Missing values become the column's default, and spellings of booleans `true` and `false`. The
    faults are pairs of a mask [N] of wrong values and what is wrong with them. A missing value is
    one if the column has no default.

    Args:
      feature: Feature of the column.
      values: Values, [N].
      is_missing: Mask of values that are missing already, bool [N]. Those that the schema lists as
        missing are added.
    """
    faults = []
    is_missing |= _is_in(values, marks(feature.missing or (), feature.dtype))
    if feature.default is not None:
        values = tf.where(is_missing, tf.constant(feature.default, values.dtype), values)
    else:
        faults.append((is_missing, ABSENT))
    if values.dtype.is_floating:
        faults.append((tf.math.is_inf(values), "is infinite"))
    if feature.type == "bool":
        plain = tf.strings.lower(tf.strings.strip(values))
        is_true = _is_in(plain, TRUE)
        faults.append((~(is_true | _is_in(plain, FALSE)), f"is no boolean, which is {EITHER}"))
        values = tf.where(is_true, TRUE[0], FALSE[0])
    return values, is_missing, faults


def _is_in(values: tf.Tensor, others: tuple[str | int | float, ...]) -> tf.Tensor:
    """Returns a mask of the values [N] that equal any of the others."""
    if not others:
        return tf.zeros_like(values, tf.bool)
    return tf.reduce_any(tf.equal(values[:, tf.newaxis], tf.constant(others, values.dtype)), axis=1)


def _parse_float(texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    is_right = tf.strings.regex_full_match(texts, NUMBER)
    # Texts become float64 first, as in the converter. Direct conversion to float32 would now and
    # then give the next number.
    values = tf.cast(tf.strings.to_number(_right(texts, is_right), tf.float64), tf.float32)
    return values, is_right & tf.math.is_finite(values)


def _parse_int(texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    is_right = tf.strings.regex_full_match(texts, WHOLE_NUMBER)
    about = tf.strings.to_number(_right(texts, is_right), tf.float64)
    is_right &= (tf.abs(about) < 2.0**63) | tf.strings.regex_full_match(texts, _LARGEST)
    return tf.strings.to_number(_right(texts, is_right), tf.int64), is_right


def _parse_time(texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Parses dates and times as in ISO 8601, such as `2024-01-31` or `2024-01-31T12:30:00+01:00`.

    Args:
      texts: Strings [N].

    Returns:
      Seconds since 1970 in UTC, int64 [N], without fractions; and a mask, bool [N], of the texts
      that are such dates or times. A text without a zone is in UTC. The seconds of any other text
      are meaningless.
    """
    is_right = tf.strings.regex_full_match(texts, ISO_8601)
    texts = tf.where(is_right, texts, _EMPTY["time"])
    for pattern, replacement in (
        (r"\.\d+", ""),
        (r"^(.{10})$", r"\1T00:00"),
        (r"^(.{16})(Z|[+-].*)?$", r"\1:00\2"),
        (r"^(.{19})Z?$", r"\1+00:00"),
    ):
        texts = tf.strings.regex_replace(texts, pattern, replacement)

    def number(start: int, length: int = 2) -> tf.Tensor:
        return tf.strings.to_number(tf.strings.substr(texts, start, length), tf.int64)

    year, month, day = number(0, 4), number(5), number(8)
    is_leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    lengths = tf.constant([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31], tf.int64)
    length = tf.gather(lengths, tf.clip_by_value(month - 1, 0, 11)) + tf.cast(
        is_leap & (month == 2), tf.int64
    )
    is_right &= (month >= 1) & (month <= 12) & (day >= 1) & (day <= length)
    # With years that begin in March, the leap day is the last one of its year.
    year, month = tf.where(month > 2, year, year - 1), (month + 9) % 12
    days = (
        365 * year + year // 4 - year // 100 + year // 400 + (153 * month + 2) // 5 + day - 719_469
    )
    west = tf.where(tf.strings.substr(texts, 19, 1) == "-", tf.constant(1, tf.int64), -1)
    minutes = 60 * (number(11) + west * number(20)) + number(14) + west * number(23)
    return 86_400 * days + 60 * minutes + number(17), is_right


def _parse_string(texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    return texts, texts == tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8")


def _right(texts: tf.Tensor, is_right: tf.Tensor) -> tf.Tensor:
    """Returns the texts of numbers without white space, and "0" for texts that are no numbers."""
    return tf.where(is_right, tf.strings.strip(texts), "0")


_PARSERS = {
    "float": _parse_float,
    "int": _parse_int,
    "time": _parse_time,
    "string": _parse_string,
    # `_finish` checks the spelling of booleans.
    "bool": lambda texts: (texts, tf.ones_like(texts, tf.bool)),
}
# Valid texts that take the place of missing ones until these get their defaults.
_EMPTY = {
    "float": "0",
    "int": "0",
    "time": "1970-01-01",
    "string": "",
    "bool": FALSE[0],
}
