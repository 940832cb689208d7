"""The rooms of the source: which folder stands on which, and what breaks the plan.

    python -m tests.lint.rooms              # the floors of every folder, the highest first, and what is wrong

Imports run `pipelines -> components -> trainer`. Inside a folder, its files and its subfolders (each taken whole) may
import each other in one direction only, so that they can be drawn in floors: what stands on a floor imports nothing
from its own floor or from one above. Imports inside functions and for type checkers count like all others.
"""

import ast
import collections
import graphlib
import itertools
import pathlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping

PACKAGES = ("pipelines", "components", "trainer")
MAX_FILES, MAX_LINES = 15, 400
NOT_IN_TRAINER = ("kfp", "docker", "google.cloud")
Arrows = Mapping[str, set[str]]


def modules(root: pathlib.Path) -> dict[str, pathlib.Path]:
    """Every file of the source by its dotted name; a package's `__init__` has the package's."""
    found = {}
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def arrows(files: Mapping[str, pathlib.Path]) -> dict[str, set[str]]:
    """By module, the modules that it imports."""
    return {name: set(_imported(path, files)) - {name} for name, path in files.items()}


def _imported(path: pathlib.Path, files: Mapping[str, pathlib.Path]) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in files)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                if name in files or node.module in files:
                    yield name if name in files else node.module


def floors(folder: str, files: Mapping[str, pathlib.Path], edges: Arrows) -> list[list[str]]:
    """What stands in a folder (a dotted name; "" for the whole), in floors from the highest to the lowest.

    Raises:
      graphlib.CycleError: If imports run in a circle; its second argument names those in it.
    """
    graph: dict[str, set[str]] = {child: set() for name in files if (child := _child(folder, name))}
    for source, targets in edges.items():
        for target in targets:
            pair = _child(folder, source), _child(folder, target)
            if all(pair) and pair[0] != pair[1]:
                graph[pair[0]].add(pair[1])
    sorter = graphlib.TopologicalSorter(graph)
    sorter.prepare()
    lowest_first = []
    while sorter.is_active():
        lowest_first.append(sorted(ready := sorter.get_ready()))
        sorter.done(*ready)
    return lowest_first[::-1]


def _child(folder: str, name: str) -> str:
    """The file or folder directly in `folder` in which the module lies, or "" if it lies elsewhere."""
    inside = name.removeprefix(f"{folder}.") if folder else name
    return "" if folder and inside == name else inside.split(".")[0]


def problems(root: pathlib.Path) -> list[str]:
    """What breaks the plan, a line each."""
    files = modules(root)
    edges = arrows(files)
    return [
        *_upwards(edges),
        *_foreign(files),
        *_circles(files, edges),
        *_crowded(files, root),
        *_twins(files, root),
    ]


def _upwards(edges: Arrows) -> Iterator[str]:
    for source, targets in edges.items():
        for target in sorted(targets):
            if PACKAGES.index(source.split(".")[0]) > PACKAGES.index(target.split(".")[0]):
                yield f"{source} imports {target}: imports run {' -> '.join(PACKAGES)}"


def _foreign(files: Mapping[str, pathlib.Path]) -> Iterator[str]:
    for name, path in files.items():
        found = re.findall(r"^ *(?:import|from) ([\w.]+)", path.read_text(encoding="utf-8"), re.MULTILINE)
        for module in found if name.startswith("trainer.") else ():
            if f"{module}.".startswith(tuple(f"{other}." for other in NOT_IN_TRAINER)):
                yield f"{name} imports {module}: the trainer knows nothing of {', '.join(NOT_IN_TRAINER)}"


def _circles(files: Mapping[str, pathlib.Path], edges: Arrows) -> Iterator[str]:
    for folder in folders(files):
        try:
            floors(folder, files, edges)
        except graphlib.CycleError as error:
            circle = error.args[1][::-1]
            yield f"{folder or 'the source'}: imports run in a circle, {' -> '.join(circle)}"
            yield from (
                f"  {source} imports {target}"
                for pair in itertools.pairwise(circle)
                for source, targets in sorted(edges.items())
                for target in sorted(targets)
                if (_child(folder, source), _child(folder, target)) == pair
            )


def folders(files: Mapping[str, pathlib.Path]) -> list[str]:
    """The dotted names of all folders, and "" for the whole."""
    parts = [name.split(".") for name in files]
    return sorted({".".join(path[:depth]) for path in parts for depth in range(len(path))})


def _crowded(files: Mapping[str, pathlib.Path], root: pathlib.Path) -> Iterator[str]:
    own = [path for path in files.values() if path.name != "__init__.py"]
    for folder, count in sorted(collections.Counter(path.parent for path in own).items()):
        if count > MAX_FILES:
            yield f"{folder.relative_to(root)}: {count} files; at most {MAX_FILES} in a folder"
    for path in files.values():
        if (lines := path.read_text(encoding="utf-8").count("\n")) > MAX_LINES:
            yield f"{path.relative_to(root)}: {lines} lines; at most {MAX_LINES} in a file"


def _twins(files: Mapping[str, pathlib.Path], root: pathlib.Path) -> Iterator[str]:
    """Files with one name: `components` has its steps, each with its own names; the others have one set of names."""
    named = collections.defaultdict(list)
    for path in files.values():
        if path.name != "__init__.py":
            parts = path.relative_to(root).parts
            named["/".join(parts[: 2 if parts[0] == "components" else 1]), path.stem].append(path.relative_to(root))
    for (step, stem), paths in sorted(named.items()):
        if len(paths) > 1:
            yield f"{step}: two files are named {stem!r}: {', '.join(map(str, paths))}"


def drawing(root: pathlib.Path) -> Iterator[str]:
    """The floors of all folders that hold more than one thing, a line each."""
    files = modules(root)
    edges = arrows(files)
    for folder in folders(files):
        try:
            drawn = floors(folder, files, edges)
        except graphlib.CycleError:
            continue
        if sum(map(len, drawn)) > 1:
            yield f"{folder or '.'}:  " + "  >  ".join(" ".join(floor) for floor in drawn)


def main(argv: Iterable[str]) -> int:
    """Draws the floors unless `--quiet`; prints what is wrong, and returns 1 if anything is."""
    root = pathlib.Path(__file__).parents[2]
    if "--quiet" not in argv:
        print("\n".join(drawing(root)))
    found = problems(root)
    print("\n".join(found), end="\n" if found else "", file=sys.stderr)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
