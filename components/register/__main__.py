"""The model registry from the command line: `python -m components.register --help`."""

import argparse
import functools
import json
from collections.abc import Callable, Sequence

from common.cli import Parser, run_cli
from common.errors import unknown
from common.pages import figure
from components.register.comparison import table
from components.register.register import load_evaluation, open_registry, promote, register
from components.register.store import CHAMPION, PROMOTE, Store


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    print(args.does(open_registry(args.registry), args))
    return 0


def _parser() -> Parser:
    p = Parser(
        prog="components.register",
        description="Versions of trained models: what each is, which one is the champion, and why. The registry is a "
        "directory or Vertex AI's Model Registry, with the same verbs.",
    )
    verbs = p.add_subparsers(metavar="VERB", required=True, parser_class=functools.partial(Parser, version=False))

    def verb(name: str, does: Callable[[Store, argparse.Namespace], str], help: str, *, named: bool = True) -> Parser:
        parser = verbs.add_parser(name, help=help, description=f"{help[0].upper()}{help[1:]}.")
        parser.add_argument("--registry", default="registry", help="a directory, or vertex://PROJECT/LOCATION")
        parser.add_argument("--name", required=named, help="of the model in the registry")
        parser.set_defaults(does=does)
        return parser

    what = "adds an evaluated model as a new version, and makes it the champion if its evaluation says so"
    flag = verb("add", _add, what).add_argument
    flag("--model-dir", required=True, help="the SavedModel, <job-dir>/model")
    flag("--evaluation", required=True, help="its evaluation.json")
    flag("--run", default="", help="id of the pipeline run that made it")
    flag("--image", default="", help="image by digest that made it; Vertex AI wants one (docs/REGISTRY.md)")
    flag("--serving-image", default="", help="image by digest that serves it on Vertex AI (docs/REGISTRY.md)")
    flag("--new-schema", action="store_true", help="it may be for other features, classes or task than before")
    verb("list", _list, "lists the versions of a model, or without --name the models", named=False)
    show = verb("show", _show, "prints what is kept of a version, as JSON")
    show.add_argument("version", nargs="?", default=CHAMPION, help="its number or an alias")
    move = verb(
        "promote", _promote, "makes a version the champion without asking for an evaluation, if it answers as it did"
    )
    move.add_argument("version", help="its number")
    back = verb("rollback", _rollback, "makes the previous champion the champion again, if it answers as it did")
    delete = verb("delete", _delete, "deletes a version that no alias points at")
    delete.add_argument("version", help="its number")
    for changes in (move, back, delete):
        changes.add_argument("--why", default="", help="for the history")
    verb("history", _history, "lists who added, moved and deleted what, when and why")
    return p


def _add(store: Store, args: argparse.Namespace) -> str:
    about = {"registry": args.registry, "name": args.name, "run": args.run}
    evaluation = load_evaluation(args.evaluation, args.model_dir)
    how = {"new_schema": args.new_schema, "image": args.image, "serving_image": args.serving_image}
    version = register(model_dir=args.model_dir, evaluation=evaluation, **how, **about)
    print(f"{args.name}: registered version {version} in {store}")
    return f"{args.name}: {promote(evaluation=evaluation, version=version, **about)}"


def _list(store: Store, args: argparse.Namespace) -> str:
    if args.name is None:
        rows = [(name, str(len(store.versions(name))), store.alias(name, CHAMPION) or "-") for name in store.names()]
        return "\n".join(table([("model", "versions", "champion"), *rows]))
    aliases = store.aliases(args.name)
    rows = [("version", "registered", "by", "figure", "aliases")]
    for version in _known(store, args.name):
        facts = store.facts(args.name, version)
        result = "its files are gone"
        if facts and store.has_files(args.name, version):
            result = f"{facts['metric']} {figure(facts['metrics'][facts['metric']])}"
        named = ", ".join(alias for alias, pointed in aliases.items() if pointed == version)
        rows.append((version, facts.get("registered", "-"), facts.get("by", "-"), result, named))
    return "\n".join(table(rows))


def _show(store: Store, args: argparse.Namespace) -> str:
    version = store.find(args.name, args.version)
    aliases = [alias for alias, pointed in store.aliases(args.name).items() if pointed == version]
    about = {"aliases": aliases, "model_dir": store.model_dir(args.name, version)}
    about["has_files"] = store.has_files(args.name, version)
    facts = store.facts(args.name, version)
    facts.pop("answered", None)  # not for people
    return json.dumps({"version": version, **about, **facts}, indent=1)


def _promote(store: Store, args: argparse.Namespace) -> str:
    store.rollback(args.name, args.version, args.why, event=PROMOTE)
    return f"{args.name}: version {args.version} is the champion now"


def _rollback(store: Store, args: argparse.Namespace) -> str:
    return f"{args.name}: version {store.rollback(args.name, why=args.why)} is the champion again"


def _delete(store: Store, args: argparse.Namespace) -> str:
    store.delete(args.name, args.version, args.why)
    return f"{args.name}: version {args.version} is deleted"


def _history(store: Store, args: argparse.Namespace) -> str:
    _known(store, args.name)
    rows = [(e["time"], e["who"], e["event"], e["version"], e["why"]) for e in store.history(args.name)]
    return "\n".join(table([("time", "who", "what", "version", "why"), *rows]))


def _known(store: Store, name: str) -> list[str]:
    if not (versions := store.versions(name)):
        raise unknown("model", name, store.names())
    return versions


if __name__ == "__main__":
    run_cli(main)
