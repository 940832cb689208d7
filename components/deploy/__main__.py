"""Puts versions of a model on a Vertex AI endpoint: `python -m components.deploy --help`."""

from collections.abc import Sequence

from common.cli import Parser, run_cli
from components.deploy.deploy import Deployment
from components.deploy.options import Options

_VERBS = {
    "deploy": "gives a version machines and a share of the requests, or the share only if it has "
    "machines",
    "list": "lists the versions that have machines",
    "rollback": "sends all requests to the version that was deployed before the one that they go "
    "to",
    "undeploy": "takes the machines of the versions that get no requests",
    "delete": "deletes the endpoint, with all machines",
}


def main(argv: Sequence[str] | None = None) -> int:
    parser = Parser(
        prog="components.deploy",
        description="Versions of a model that answer on a Vertex AI endpoint, one for each model. "
        "Machines cost money while they are there. "
        + "; ".join(f"{verb} {what}" for verb, what in _VERBS.items())
        + ".",
    )
    parser.add_argument("verb", choices=_VERBS)
    Options.add_flags(parser)
    args = parser.parse_args(argv)
    deployment = Deployment(Options.of(args))
    if args.verb != "list":
        getattr(deployment, args.verb)()
    print(deployment)
    return 0


if __name__ == "__main__":
    run_cli(main)
