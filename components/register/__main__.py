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
from components.register.registry import CHAMPION, PROMOTE, Registry


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    print(args.verb(open_registry(args.registry), args))
    return 0


def _parser() -> Parser:
    p = Parser(
        prog="components.register",
        description="Versions of trained models: what each is, which one is the champion, and why. The registry is a "
        "directory or Vertex AI's Model Registry, with the same verbs.",
    )
    verbs = p.add_subparsers(metavar="VERB", required=True, parser_class=functools.partial(Parser, version=False))

    def add(
        name: str,
        verb: Callable[[Registry, argparse.Namespace], str],
        help: str,
        *,
        named: bool = True,
        why: bool = False,
    ) -> Callable[..., object]:
        parser = verbs.add_parser(name, help=help, description=f"{help[0].upper()}{help[1:]}.")
        parser.add_argument("--registry", default="registry", help="a directory, or vertex://PROJECT/LOCATION")
        parser.add_argument("--name", required=named, help="of the model in the registry")
        if why:
            parser.add_argument("--why", default="", help="for the history")
        parser.set_defaults(verb=verb)
        return parser.add_argument

    what = "adds an evaluated model as a new version, and makes it the champion if its evaluation says so"
    flag = add("add", _add, what)
    flag("--model-dir", required=True, help="the SavedModel, <job-dir>/model")
    flag("--evaluation", required=True, help="its evaluation.json")
    flag("--run", default="", help="id of the pipeline run that made it")
    flag("--image", default="", help="image by digest that made it; Vertex AI wants one (docs/REGISTRY.md)")
    flag("--serving-image", default="", help="image by digest that serves it on Vertex AI (docs/REGISTRY.md)")
    flag("--new-schema", action="store_true", help="it may be for other features, classes or task than before")
    add("list", _list, "lists the versions of a model, or without --name the models", named=False)
    flag = add("show", _show, "prints what is kept of a version, as JSON")
    flag("version", nargs="?", default=CHAMPION, help="its number or an alias")
    what = "makes a version the champion without asking for an evaluation, if it answers as it did"
    add("promote", _promote, what, why=True)("version", help="its number")
    add("rollback", _rollback, "makes the previous champion the champion again, if it answers as it did", why=True)
    add("delete", _delete, "deletes a version that no alias points at", why=True)("version", help="its number")
    add("history", _history, "lists who added, moved and deleted what, when and why")
    return p


def _add(registry: Registry, args: argparse.Namespace) -> str:
    about = {"registry": args.registry, "name": args.name, "run": args.run}
    evaluation = load_evaluation(args.evaluation, args.model_dir)
    made_by = {"new_schema": args.new_schema, "image": args.image, "serving_image": args.serving_image}
    version = register(model_dir=args.model_dir, evaluation=evaluation, **made_by, **about)
    print(f"{args.name}: registered version {version} in {registry}")
    return f"{args.name}: {promote(evaluation=evaluation, version=version, **about)}"


def _list(registry: Registry, args: argparse.Namespace) -> str:
    name = args.name
    if name is None:
        rows = [(m, str(len(registry.versions(m))), registry.aliases(m).get(CHAMPION, "-")) for m in registry.names()]
        return "\n".join(table([("model", "versions", "champion"), *rows]))
    rows = [("version", "registered", "by", "figure", "aliases")]
    for version in _known(registry, name):
        facts = registry.show(name, version)
        result = "its files are gone"
        if registry.has_files(name, version):
            result = f"{facts['metric']} {figure(facts['metrics'][facts['metric']])}"
        aliases = ", ".join(registry.aliases_of(name, version))
        rows.append((version, facts.get("registered", "-"), facts.get("by", "-"), result, aliases))
    return "\n".join(table(rows))


def _show(registry: Registry, args: argparse.Namespace) -> str:
    which = args.name, registry.find(args.name, args.version)
    about = {"aliases": registry.aliases_of(*which), "model_dir": registry.model_dir(*which)}
    facts = registry.show(*which)
    facts.pop("answered", None)  # not for people
    return json.dumps({"version": which[1], **about, "has_files": registry.has_files(*which), **facts}, indent=1)


def _promote(registry: Registry, args: argparse.Namespace) -> str:
    registry.rollback(args.name, args.version, args.why, event=PROMOTE)
    return f"{args.name}: version {args.version} is the champion now"


def _rollback(registry: Registry, args: argparse.Namespace) -> str:
    return f"{args.name}: version {registry.rollback(args.name, why=args.why)} is the champion again"


def _delete(registry: Registry, args: argparse.Namespace) -> str:
    registry.delete(args.name, args.version, args.why)
    return f"{args.name}: version {args.version} is deleted"


def _history(registry: Registry, args: argparse.Namespace) -> str:
    _known(registry, args.name)
    rows = [(e["time"], e["who"], e["event"], e["version"], e["why"]) for e in registry.history(args.name)]
    return "\n".join(table([("time", "who", "what", "version", "why"), *rows]))


def _known(registry: Registry, name: str) -> list[str]:
    if not (versions := registry.versions(name)):
        raise unknown("model", name, registry.names())
    return versions


if __name__ == "__main__":
    run_cli(main)
