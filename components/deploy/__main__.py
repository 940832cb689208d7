"""Puts versions of a model on a Vertex AI endpoint: `python -m components.deploy --help`."""

from collections.abc import Sequence

from common.cli import Parser, run_cli
from common.errors import UserError
from common.google_cloud import refusals
from components.deploy import deploy
from components.deploy.options import Options


def main(argv: Sequence[str] | None = None) -> int:
    parser = Parser(
        prog="components.deploy",
        description="Versions of a model that answer on a Vertex AI endpoint, one for each model. "
        "Machines cost money while they are there. deploy gives a version machines and a share of "
        "the requests, or the share only if it has machines; list lists the versions that have "
        "machines; rollback sends all requests to the version that was deployed before the one "
        "that they go to; undeploy takes the machines of the versions that get no requests; delete "
        "deletes the endpoint, with all machines.",
    )
    parser.add_argument("verb", choices=("deploy", "list", "rollback", "undeploy", "delete"))
    Options.add_flags(parser)
    args = parser.parse_args(argv)
    options = Options.of(args)
    with refusals(options.registry):
        endpoint = deploy.find_endpoint(options)
        if args.verb == "deploy":
            endpoint = deploy.deploy(options, endpoint)
        if not endpoint:
            raise UserError(f"model {options.model!r} has no endpoint")
        if args.verb in ("rollback", "undeploy"):
            getattr(deploy, args.verb)(endpoint)
        if args.verb == "delete":
            endpoint.delete(force=True)
        else:
            print(deploy.listed(endpoint))
    return 0


if __name__ == "__main__":
    run_cli(main)
