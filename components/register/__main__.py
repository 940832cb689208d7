"""Registers an evaluated model from the command line: `python -m components.register --help`."""

from collections.abc import Sequence

from components.register.register import load_evaluation, open_registry, promote, register
from trainer.base.errors import Parser, run_cli


def main(argv: Sequence[str] | None = None) -> int:
    p = Parser(
        prog="components.register",
        description="Adds an evaluated model to a registry as a new version, and makes it the champion when it is "
        "better than the one there is. --rollback makes the previous champion the champion again.",
    )
    p.add_argument("--registry", required=True, help="a directory; to go back also vertex://PROJECT/LOCATION")
    p.add_argument("--name", required=True, help="of the model in the registry")
    p.add_argument("--model-dir", help="the SavedModel, <job-dir>/model")
    p.add_argument("--evaluation", help="its evaluation.json")
    p.add_argument("--run", default="", help="id of the pipeline run that made it")
    p.add_argument("--rollback", action="store_true", help="go back to the previous champion")
    args = p.parse_args(argv)
    if args.rollback:
        print(f"{args.name}: version {open_registry(args.registry).rollback(args.name)} is the champion again")
        return 0
    if not (args.model_dir and args.evaluation):
        p.error("--model-dir and --evaluation are needed (or --rollback)")
    evaluation = load_evaluation(args.evaluation, args.model_dir)
    version = register(
        model_dir=args.model_dir, evaluation=evaluation, registry=args.registry, name=args.name, run=args.run
    )
    print(f"{args.name}: registered version {version} in {args.registry}")
    print(f"{args.name}: {promote(evaluation=evaluation, registry=args.registry, name=args.name, version=version)}")
    return 0


if __name__ == "__main__":
    run_cli(main)
