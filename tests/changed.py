"""Documents of dicts and lists in which one thing is changed."""

import copy


def changed(data, place, value):
    """Returns a copy of a document with another value at a place such as `columns.0.name`.

    None leaves out what is there.
    """
    root = copy.deepcopy(data)
    *parents, key = [int(part) if part.isdigit() else part for part in place.split(".")]
    inside = root
    for part in parents:
        inside = inside[part]
    if value is None:
        del inside[key]
    else:
        inside[key] = value
    return root
