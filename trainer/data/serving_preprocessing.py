"""Conversion of a table's values inside the exported model, as the converter has done it.

    serving_preprocessing(manifest, {"age": [31.0, nan], "paid": ["True", ""]})
    serving_preprocessing(manifest, {"age": ["31", ""], "paid": ["True", ""]})
    # both: {"age": 31 and the default, "paid": "true" and the default}
    serving_preprocessing(manifest, {"age": ["31", "x"]})
    # InvalidArgumentError: ... [age: 'x' is no finite 32-bit number (row 1)]

Training itself reads records that the converter has converted already.
"""

from collections.abc import Mapping

import tensorflow as tf

from common.manifest import Manifest
from common.spellings import (
    ABSENT,
    FALSE,
    ISO_8601,
    KINDS,
    NUMBER,
    TRUE,
    WHOLE_NUMBER,
    marks,
)

_SHOWN = 40  # Number of characters of a wrong value that a message shows.


@tf.autograph.experimental.do_not_convert
def serving_preprocessing(
    manifest: Manifest, columns: Mapping[str, tf.Tensor]
) -> dict[str, tf.Tensor]:
    """Returns columns of a table as the converter stores them; those of images are unchanged.

    Columns come as values of their own types, or as texts, which are parsed as the cells of a CSV
    file. A value is missing if it is NaN, or one that the schema lists as missing, and becomes the
    column's default. The spellings of a boolean become `true` and `false`. Values that are
    converted already stay as they are. Inputs that say whether another one is missing are added,
    unless they are there.

    Args:
      manifest: Manifest of the dataset.
      columns: Model inputs by name, [N] for a table.

    Raises:
      tf.errors.InvalidArgumentError: When it runs, if a value without a default is missing, a float
        is infinite, a boolean has another spelling, or a text is of another type. The converter
        refuses such rows, so that no model has learnt what they mean. The message has a line for
        each wrong value, with the name of its column and the number of its row, from 0. TensorFlow
        itself refuses whole numbers of more than 64 bits, without these.
      UserError: If a table has no column of such a name.
    """
    served = dict(columns)
    if not manifest.is_table:
        return served
    faults = [tf.constant([], tf.string)]
    for name, cells in columns.items():
        feature = manifest.feature(name)
        kind, missing = feature.type or "", feature.missing or ()
        values, is_missing = cells, tf.not_equal(cells, cells)  # Only NaN differs from itself.
        if cells.dtype == tf.string:
            is_missing = _is_in(cells, missing)
            pattern, valid, parse = _PARSERS[kind]
            # A valid text takes the place of a missing one, until this gets its default.
            texts = tf.where(is_missing, valid, cells)
            is_text = tf.strings.regex_full_match(texts, pattern)
            values, is_valid = parse(tf.where(is_text, texts, valid))
            faults.append(_describe(name, cells, ~(is_text & is_valid), f"is no {KINDS[kind]}"))
        if feature.dtype != "string":
            is_missing |= _is_in(values, marks(missing, feature.dtype))
        if feature.default is None:
            faults.append(_describe(name, cells, is_missing, ABSENT))
        else:
            values = tf.where(is_missing, tf.constant(feature.default, values.dtype), values)
        if values.dtype.is_floating:
            faults.append(_describe(name, cells, tf.math.is_inf(values), "is infinite"))
        served[name] = values
        for indicator in manifest.inputs:
            if indicator.indicates == name:
                served.setdefault(indicator.name, tf.cast(is_missing, tf.int64))
    listed = tf.strings.reduce_join(tf.concat(faults, 0), separator="\n")
    tf.debugging.Assert(listed == "", [listed])
    return served


def _describe(name: str, cells: tf.Tensor, is_wrong: tf.Tensor, fault: str) -> tf.Tensor:
    """Returns a line for each wrong value of a column, strings [number of wrong values].

    Args:
      name: Name of the column.
      cells: Its values as they came, [N].
      is_wrong: Mask of the wrong ones, bool [N].
      fault: What is wrong with them.
    """
    rows = tf.where(is_wrong)[:, 0]
    text = tf.strings.regex_replace(
        _utf8(tf.strings.as_string(tf.gather(cells, rows))), r"\s+", " "
    )
    text = tf.strings.substr(text, 0, _SHOWN, unit="UTF8_CHAR")
    return tf.strings.join(
        [f"{name}: '", text, f"' {fault} (row ", tf.strings.as_string(rows), ")"]
    )


def _utf8(texts: tf.Tensor) -> tf.Tensor:
    return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8")


def _is_in(values: tf.Tensor, others: tuple[str | int | float, ...]) -> tf.Tensor:
    """Returns a mask of the values [N] that equal any of the others."""
    return tf.reduce_any(tf.equal(values[:, tf.newaxis], tf.constant(others, values.dtype)), axis=1)


def _parse_time(texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Parses dates and times as in ISO 8601, such as `2024-01-31` or `2024-01-31T12:30:00+01:00`.

    Args:
      texts: Strings [N].

    Returns:
      Seconds since 1970 in UTC, int64 [N], without fractions, where a text without a zone is in
      UTC; and a mask, bool [N], of the texts whose months have such a day. The seconds of any other
      text are meaningless.
    """
    # A field that is left out becomes 0.
    fields = tf.strings.regex_replace(texts, ISO_8601, r"\1 \2 \3 0\4 0\5 0\6 \70\8 \70\9")
    numbers = tf.strings.to_number(tf.strings.split(fields).to_tensor(shape=(None, 8)), tf.int64)
    year, month, day, hour, minute, second, east_hour, east_minute = tf.unstack(numbers, 8, axis=1)
    # With years that begin in March, the leap day is the last one of its year.
    months = 12 * year + month - 3
    before = _days_before(months)
    minutes = 60 * (hour - east_hour) + minute - east_minute
    seconds = 86_400 * (before + day) + 60 * minutes + second
    return seconds, day <= _days_before(months + 1) - before


def _days_before(months: tf.Tensor) -> tf.Tensor:
    """Returns the days from 1970-01-01 to the last day before a month, int64 [N].

    Args:
      months: Months from March of the year 0 to this month, int64 [N].
    """
    year = months // 12
    in_year = (153 * (months % 12) + 2) // 5
    return 365 * year + year // 4 - year // 100 + year // 400 + in_year - 719_469


def _parse_bool(texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    plain = tf.strings.lower(tf.strings.strip(texts))
    is_true = _is_in(plain, TRUE)
    return tf.where(is_true, TRUE[0], FALSE[0]), is_true | _is_in(plain, FALSE)


_ANY = "(?s).*"
# By type: a pattern of the texts, a valid text, and a function of texts [N] that match, which
# returns their values and a mask of the valid ones.
_PARSERS = {
    # Texts become float64 first, as in the converter. Direct conversion to float32 would now and
    # then give the next number.
    "float": (
        NUMBER,
        "0",
        lambda texts: (tf.cast(tf.strings.to_number(texts, tf.float64), tf.float32), True),
    ),
    "int": (WHOLE_NUMBER, "0", lambda texts: (tf.strings.to_number(texts, tf.int64), True)),
    "time": (ISO_8601, "1970-01-01", _parse_time),
    "string": (_ANY, "", lambda texts: (texts, texts == _utf8(texts))),
    "bool": (_ANY, FALSE[0], _parse_bool),
}
