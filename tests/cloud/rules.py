"""The published rules of Vertex AI's messages, which `rules.yaml` lists with their sources.

check(model, "projects/p/locations/l/models")  # InvalidArgument, which names the wrong fields
"""

import datetime
import enum
import functools
import pathlib
import re
from collections.abc import Mapping
from typing import Any

import proto
import yaml
from google.api_core import exceptions

_TABLE = yaml.safe_load(pathlib.Path(__file__).with_name("rules.yaml").read_text())
RULES = _TABLE["rules"]
# Allowed numbers of accelerators by use, machine type and accelerator.
MACHINES: dict[str, Any] = {"training": {}, "prediction": {}}
for _row in _TABLE["machines"]:
    for _family, _endings, _unit in re.findall(r"([\w-]+-)\{?([\d,]+|tpu)\}?(\w*)", _row["names"]):
        for _number in _endings.split(","):
            _gpus = _row["gpus"].items()
            _counts = {gpu: [int(_number)] if n == "name" else n for gpu, n in _gpus}
            for _use in _row.get("for", MACHINES):
                MACHINES[_use][f"{_family}{_number}{_unit}"] = _counts


def check(message, path):
    """Refuses what is sent to a path, in Google's words, if a rule is broken."""
    faults = [f"{i}.Field: {fault}\t" for i, fault in enumerate(_faults(message, path, ""), 1)]
    if faults:
        raise exceptions.InvalidArgument(f"List of found errors:\t{''.join(faults)}")


@functools.cache
def rules(kind):
    """Returns the rules of a type of message, those of fields that have to be set first."""
    # The option `field_behavior` is not in the client's descriptors, but in its documentation.
    required = re.findall(r"^ *(\w+) \(.*\):\n +Required\.", kind.__doc__ or "", re.MULTILINE)
    listed = [rule for rule in RULES if kind.__name__ in rule["kind"].split()]
    return [{"field": name, "rule": "required", "source": "client"} for name in required] + listed


def read(message, path):
    """Returns the field at a path: seconds of a duration, the name of an enum's value."""
    for part in path.split("."):
        message = message[0] if part == "0" and message else getattr(message, part, None)
    if isinstance(message, datetime.timedelta):
        return message.total_seconds()
    return message.name if isinstance(message, enum.Enum) and message else message


def _faults(message, path, place):
    """Yields path and fault of each wrong field."""
    for rule in rules(type(message)):
        value = read(message, rule["field"])
        applies = all(read(message, at) == only for at, only in rule.get("when", {}).items())
        if applies and not _holds(rule["rule"], rule.get("value"), value, message, path):
            at = place + rule["field"].replace(".0", "[0]")
            yield f"{at}; Message: {value!r:.200} breaks {rule['rule']} {rule.get('value', '')}"
    for name, field in type(message).meta.fields.items():
        value = getattr(message, name)
        items = value if field.repeated else [value] * (name in message)
        for index, item in enumerate(items):
            # An empty worker pool is one that is left out.
            if isinstance(item, proto.Message) and (item or name != "worker_pool_specs"):
                at = f"{name}[{index}]" if field.repeated else name
                yield from _faults(item, path, f"{place}{at}.")


def _holds(rule, bound, value, message, path):
    match rule:
        case "required":
            return value
        case "parameters":
            inputs = (read(message, bound) or {}).get("root", {}).get("inputDefinitions", {})
            known = inputs.get("parameters", {})
            optional = {name for name in known if {"defaultValue", "isOptional"} & {*known[name]}}
            return known.keys() - optional <= value.keys() <= known.keys()
        case "among":
            return value in bound
        case "same":
            return len({str(read(pool, bound)) for pool in value if pool}) == 1
        case "one_of":
            return sum(bool(read(message, name)) for name in bound) == 1
        case _ if not value:
            return True
        case "pattern":
            texts = [value] if isinstance(value, str) else value
            if isinstance(value, Mapping):
                texts = map("=".join, value.items())
            return all(re.fullmatch(bound, text) for text in texts)
        case "most":
            return len(value) <= bound
        case "range":
            return bound[0] <= value <= bound[1]
        case "total":
            return sum(value.values()) == bound and min(value.values()) >= 0
        case "machine":
            offers = MACHINES[bound].get(value.machine_type or "n1-standard-2", {})
            return value.accelerator_count in offers.get(value.accelerator_type.name, [])
        case "needs" | "excludes":
            return bool(read(message, bound)) == (rule == "needs")
        case "not_below":
            return value >= read(message, bound)
        case "region":
            return f"/{path.split('/')[3]}/" in value
