"""The model registry from the command line: `python -m components.register --help`."""

import argparse
import functools
import json
from collections.abc import Callable, Sequence

from common.cli import Parser, run_cli
from common.errors import unknown
from common.pages import figure, table
from components.register.register import load_evaluation, open_registry, promote, register
from components.register.registry import CHAMPION, PROMOTE, Registry


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    print(_run(open_registry(args.registry), args))
    return 0


def _parser() -> Parser:
    p = Parser(
        prog="components.register",
        description="Versions of trained models: what each is, which one is the champion, and why. The registry is a "
        "directory or Vertex AI's Model Registry, with the same verbs.",
    )
    verbs = p.add_subparsers(
        dest="verb", metavar="VERB", required=True, parser_class=functools.partial(Parser, version=False)
    )

    def add(name: str, help: str, *, is_named: bool = True, has_why: bool = False) -> Callable[..., object]:
        parser = verbs.add_parser(name, help=help, description=f"{help[0].upper()}{help[1:]}.")
        parser.add_argument("--registry", default="registry", help="a directory, or vertex://PROJECT/LOCATION")
        parser.add_argument("--name", required=is_named, help="of the model in the registry")
        if has_why:
            parser.add_argument("--why", default="", help="for the history")
        return parser.add_argument

    flag = add("add", "adds an evaluated model as a new version, and makes it the champion if its evaluation says so")
    flag("--model-dir", required=True, help="the SavedModel, <job-dir>/model")
    flag("--evaluation", required=True, help="its evaluation.json")
    flag("--run", default="", help="id of the pipeline run that made it")
    flag("--image", default="", help="image by digest that made it; Vertex AI wants one (docs/REGISTRY.md)")
    flag("--serving-image", default="", help="image by digest that serves it on Vertex AI (docs/REGISTRY.md)")
    flag("--new-schema", action="store_true", help="it may be for other features, classes or task than before")
    add("list", "lists the versions of a model, or without --name the models", is_named=False)
    flag = add("show", "prints what is kept of a version, as JSON")
    flag("version", nargs="?", default=CHAMPION, help="its number or an alias")
    what = "makes a version the champion without asking for an evaluation, if it answers as it did"
    add("promote", what, has_why=True)("version", help="its number")
    add("rollback", "makes the previous champion the champion again, if it answers as it did", has_why=True)
    add("delete", "deletes a version that no alias points at", has_why=True)("version", help="its number")
    add("history", "lists who added, moved and deleted what, when and why")
    return p


def _run(registry: Registry, args: argparse.Namespace) -> str:
    """Does what a verb asks for. Returns what to print."""
    match args.verb:
        case "add":
            return _add(registry, args)
        case "list":
            return _models(registry) if args.name is None else _versions(registry, args.name)
        case "show":
            return _show(registry, args.name, registry.find(args.name, args.version))
        case "promote":
            registry.rollback(args.name, args.version, args.why, event=PROMOTE)
            return f"{args.name}: version {args.version} is the champion now"
        case "rollback":
            return f"{args.name}: version {registry.rollback(args.name, why=args.why)} is the champion again"
        case "delete":
            registry.delete(args.name, args.version, args.why)
            return f"{args.name}: version {args.version} is deleted"
    columns = ("time", "who", "event", "version", "why")
    rows = [[event[column] for column in columns] for event in registry.history(args.name)]
    if not rows:
        raise unknown("model", args.name, registry.names())
    return table([["time", "who", "what", "version", "why"], *rows])


def _add(registry: Registry, args: argparse.Namespace) -> str:
    about = {"registry": args.registry, "name": args.name, "run": args.run}
    evaluation = load_evaluation(args.evaluation, args.model_dir)
    made_by = {"new_schema": args.new_schema, "image": args.image, "serving_image": args.serving_image}
    version = register(model_dir=args.model_dir, evaluation=evaluation, **made_by, **about)
    print(f"{args.name}: registered version {version} in {registry}")
    return f"{args.name}: {promote(evaluation=evaluation, version=version, **about)}"


def _models(registry: Registry) -> str:
    names = registry.names()
    rows = [(name, str(len(registry.versions(name))), registry.aliases(name).get(CHAMPION, "-")) for name in names]
    return table([("model", "versions", "champion"), *rows])


def _versions(registry: Registry, name: str) -> str:
    if not (versions := registry.versions(name)):
        raise unknown("model", name, registry.names())
    rows = [("version", "registered", "by", "figure", "aliases")]
    for version in versions:
        facts = registry.show(name, version)
        result = "its files are gone"
        if registry.has_files(name, version):
            result = f"{facts['metric']} {figure(facts['metrics'][facts['metric']])}"
        aliases = ", ".join(registry.aliases_of(name, version))
        rows.append((version, facts.get("registered", "-"), facts.get("by", "-"), result, aliases))
    return table(rows)


def _show(registry: Registry, name: str, version: str) -> str:
    facts = registry.show(name, version)
    facts.pop("answered", None)  # not for people
    about = {
        "version": version,
        "aliases": registry.aliases_of(name, version),
        "model_dir": registry.model_dir(name, version),
        "has_files": registry.has_files(name, version),
    }
    return json.dumps({**about, **facts}, indent=1)


if __name__ == "__main__":
    run_cli(main)
