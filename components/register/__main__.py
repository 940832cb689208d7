"""The model registry from the command line: `python -m components.register --help`."""

import argparse
import dataclasses
import json
from collections.abc import Sequence

from common.cli import Parser, run_cli
from common.errors import unknown
from common.pages import figure, table
from components.register.card import card
from components.register.register import load_evaluation, open_registry, promote, register
from components.register.registry import CHAMPION, Registry

_VERBS = {
    "add": "adds an evaluated model as a new version, and makes it the champion if its evaluation "
    "says so",
    "list": "lists the versions of a model, or without --name the models",
    "show": "prints what is kept of a version, as JSON",
    "card": "prints what a version is, what it takes and how to ask it, as Markdown",
    "promote": "makes a version the champion without asking for an evaluation, if it answers as "
    "it did",
    "rollback": "makes the previous champion the champion again, if it answers as it did",
    "delete": "deletes a version that no alias points at",
    "history": "lists who added, moved and deleted what, when and why",
}


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    print(_run(open_registry(args.registry), args))
    return 0


def _parser() -> Parser:
    p = Parser(
        prog="components.register",
        description="Versions of trained models: what each is, which one is the champion, and "
        "why. The registry is a directory or Vertex AI's Model Registry, with the same verbs.",
    )
    verbs = p.add_subparsers(dest="verb", metavar="VERB", required=True)
    parsers = {}
    for verb, help in _VERBS.items():
        parsers[verb] = verbs.add_parser(
            verb, help=help, description=f"{help[0].upper()}{help[1:]}."
        )
        parsers[verb].add_argument(
            "--registry", default="registry", help="a directory, or vertex://PROJECT/LOCATION"
        )
        parsers[verb].add_argument(
            "--name", required=verb != "list", help="of the model in the registry"
        )
    for verb in ("promote", "rollback", "delete"):
        parsers[verb].add_argument("--why", default="", help="for the history")
    for verb in ("promote", "delete"):
        parsers[verb].add_argument("version", help="its number")
    for verb in ("show", "card"):
        parsers[verb].add_argument(
            "version", nargs="?", default=CHAMPION, help="its number or an alias"
        )
    flag = parsers["add"].add_argument
    flag("--model-dir", required=True, help="the SavedModel, <job-dir>/model")
    flag("--evaluation", required=True, help="its evaluation.json")
    flag("--run", default="", help="id of the pipeline run that made it")
    flag(
        "--image",
        default="",
        help="image by digest that made it, and serves it on Vertex AI, which wants one",
    )
    return p


def _run(registry: Registry, args: argparse.Namespace) -> str:
    """Carries out a verb of the command line, and returns the text to print.

    `add` prints a line itself, once the version is registered.

    Raises:
      UserError: If there is no model of that name, except for `add`; or if the verb fails.
      ConnectionError: If Vertex AI or a store does not answer.
    """
    name = args.name
    if args.verb != "add" and name and not registry.versions(name):
        raise unknown("model", name, registry.names())
    match args.verb:
        case "add":
            about = {"registry": args.registry, "name": name}
            about["evaluation"] = load_evaluation(args.evaluation, args.model_dir)
            version = register(model_dir=args.model_dir, run=args.run, image=args.image, **about)
            print(f"{name}: registered version {version} in {registry}")
            return f"{name}: {promote(version=version, **about)}"
        case "list":
            return _versions(registry, name) if name else _models(registry)
        case "show":
            found = registry.find(name, args.version)
            # `answered` is for programs only: requests and answers to check a server by.
            facts = {key: value for key, value in found.facts.items() if key != "answered"}
            return json.dumps({**dataclasses.asdict(found), **facts}, indent=1)
        case "card":
            return card(registry, name, registry.find(name, args.version))
        case "promote":
            now = "now" if registry.promote(name, args.version, args.why) else "already"
            return f"{name}: version {args.version} is the champion {now}"
        case "rollback":
            return f"{name}: version {registry.rollback(name, args.why)} is the champion again"
        case "delete":
            registry.delete(name, args.version, args.why)
            return f"{name}: version {args.version} is deleted"
    columns = ("time", "who", "event", "version", "why")
    return table(
        [columns, *([event[column] for column in columns] for event in registry.history(name))]
    )


def _models(registry: Registry) -> str:
    names = registry.names()
    rows = [
        (name, str(len(registry.versions(name))), registry.aliases(name).get(CHAMPION, "-"))
        for name in names
    ]
    return table([("model", "versions", "champion"), *rows])


def _versions(registry: Registry, name: str) -> str:
    rows = [("version", "registered", "by", "figure", "aliases")]
    for version in registry.versions(name):
        facts = version.facts
        result = "its files are gone"
        if version.has_files:
            result = f"{facts['metric']} {figure(facts['metrics'][facts['metric']])}"
        aliases = ", ".join(version.aliases)
        rows.append(
            (version.number, facts.get("registered", "-"), facts.get("by", "-"), result, aliases)
        )
    return table(rows)


if __name__ == "__main__":
    run_cli(main)
