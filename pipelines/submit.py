"""Submits the pipeline to Vertex AI or Kubeflow Pipelines: `python pipelines/submit.py --help`.

`--dry-run` prints the exact request and sends nothing. Required keys that are missing then have
values such as `my-project`.
"""

import argparse
import dataclasses
import json
import os
import re
import sys
from collections.abc import Iterator, Sequence

from common.cli import Parser, confirm, run_cli
from common.errors import UserError
from common.storage.files import parsed_json
from components.evaluate.gate import OUTCOMES, REJECT
from components.register.register import open_registry
from components.train.backends.attempts import JobStore, first_attempt
from components.train.cluster.cluster_file import Cluster
from pipelines import kubeflow
from pipelines.arguments import EVALUATE_OWN, EXIT_REJECTED, evaluation
from pipelines.cloud_options import NEEDED, check_place, scheduled_as
from pipelines.config import Config
from pipelines.kubeflow import KEYS
from pipelines.vertex.submission import Submission, prepare

_EXIT_CODES = (
    "exit codes: 0 submitted, or with --wait ended well; 1 the run failed, or Google Cloud does "
    "not answer; 2 a\nmistake that the message names; "
    f"{EXIT_REJECTED} rejected, with --fail-on-reject; 130 Ctrl-C, which ends the waiting and not "
    "the run."
)


def main(argv: Sequence[str] | None = None) -> int:
    """Submits or resumes a run, lists runs, or cancels one. Returns the exit code.

    It is 0 after a success, 1 if the run failed, and with --fail-on-reject 3 if its model is
    rejected. The failure of a run, and a rejection, show only with --wait.

    Args:
      argv: Arguments without the program's name; those of this process if None.

    Raises:
      UserError: If the arguments or what they name are wrong.
      ConnectionError: If Google Cloud does not answer.
    """
    args = _parser().parse_args(argv)
    config = KEYS.read(args)
    if config.kfp_host:
        others = [name for name in ("resume", "list", "cancel") if vars(args)[name]]
        if others := [*others, *kubeflow.unusable(config)]:
            raise UserError(f"{', '.join(others)}: no use with --kfp-host; leave it out")
    if not config.project:
        config = config.model_copy(update={"project": os.environ.get("GOOGLE_CLOUD_PROJECT")})
    if config.kfp_host:
        return kubeflow.submit(config, wait=args.wait, dry_run=args.dry_run)
    return _manage(args, config) if args.list or args.cancel else _submit(args, config)


def _parser() -> Parser:
    p = Parser(
        prog="pipelines/submit.py",
        description="Submits the pipeline to Vertex AI Pipelines, after all checks, or to another "
        "server of Kubeflow Pipelines (--kfp-host).",
        epilog=_EXIT_CODES,
    )
    KEYS.add_flags(p)
    command = p.add_argument_group("this command")
    command.add_argument(
        "--dry-run",
        action="store_true",
        help="print the request and send nothing; needs no account",
    )
    command.add_argument("--yes", action="store_true", help="do not ask before it is sent")
    command.add_argument(
        "--wait",
        action="store_true",
        help="until the run has ended, telling what it does; training that Vertex AI gives up is "
        "submitted again as long as it comes further or there are other machines to try",
    )
    command.add_argument(
        "--resume",
        metavar="RUN",
        help="go on with a run of this bucket as it was submitted, but for keys of limits and of "
        "the evaluation",
    )
    command.add_argument("--list", action="store_true", help="runs of ours, and nothing else")
    command.add_argument("--cancel", metavar="NAME", help="end a run, and nothing else")
    return p


def _submit(args: argparse.Namespace, config: Config) -> int:
    """Submits a new run, or resumes an earlier one. Returns the exit code.

    With --dry-run it prints the request instead. Without --yes it asks before it sends it. A run
    that has succeeded is not sent again unless keys of its evaluation change: its result is printed
    instead. The code is 0 if nothing is sent, or if the run is submitted or, with --wait, has
    succeeded; 1 if it has failed or was cancelled; 3 if the model of a run with a result is
    rejected, with --fail-on-reject.

    Raises:
      UserError: If a key is wrong, there is no run to resume or it goes on, its evaluation is gone
        or damaged, a limit is used up, Google Cloud refuses something, or there is no terminal to
        ask at.
      ConnectionError: If Google Cloud does not answer.
    """
    if config.fail_on_reject and not args.wait:
        raise UserError("--fail-on-reject needs --wait: nothing is known before the run has ended")
    if args.dry_run:
        missing = {key: example for key, (_, example) in NEEDED.items() if not getattr(config, key)}
        config = config.model_copy(update=missing)
        if missing:
            print(
                f"note: {', '.join(f'--{key}' for key in missing)} not given; examples stand in",
                file=sys.stderr,
            )
    if args.resume:
        check_place(config, ["bucket"])
        earlier = Submission.load(config.bucket, args.resume)
        submission = _resumed(earlier, config)
    else:
        submission = prepare(config)
    project, location = submission.values["project"], submission.values["location"]
    # The directory of an earlier training has a record of its own jobs.
    store, runs = JobStore(f"{submission.bucket}/runs/{submission.run}/job"), []
    # Imported here, since Google's clients take 2 s to import.
    from pipelines.vertex import checks, client, sending, watch

    if args.resume or not args.dry_run:
        client.connect(project, location)
    if args.resume:
        runs = sending.recorded(submission, store)
        is_same = submission.values["evaluate_args"] == earlier.values["evaluate_args"]
        if is_same and any(watch.state_of(run) == "SUCCEEDED" for run in runs):
            print(f"{submission.run} has ended well, and nothing is sent:")
            return _ended(config, submission)
    first = first_attempt(store.attempts, submission.bounds)
    summary = [f"{submission.run} in {location} of {project}, {submission.image}"]
    # A submission always has a time limit.
    summary += _machines(submission.cluster, first.timeout_s or 0)
    trainer = " ".join(submission.values["trainer_args"])
    if own := re.search(r"--model[ =]((?!trainer\.)[\w.]+):", trainer):
        summary.append(f"  the image has to have the module {own[1]}")
    if args.dry_run:
        print(json.dumps(submission.request(submission.run, first), indent=2), flush=True)
        print(*summary, sep="\n", file=sys.stderr)
        return 0
    checks.check_access(submission)
    print(*summary, sep="\n", flush=True)
    if not args.yes and not confirm("submit it"):
        return 0
    code = sending.run(submission, store, runs, wait=args.wait)
    return _ended(config, submission) if args.wait and not code else code


def _resumed(submission: Submission, config: Config) -> Submission:
    """Returns an earlier submission with the limits and evaluation keys of this command.

    Keys that are not given stay as they were.

    Raises:
      UserError: If the value of a key is not allowed.
    """
    evaluate_args = evaluation(config, submission.values["evaluate_args"]).as_flags(
        but=EVALUATE_OWN
    )
    cluster = scheduled_as(submission.cluster, config)
    return dataclasses.replace(
        submission,
        values={**submission.values, "cluster": cluster.to_json(), "evaluate_args": evaluate_args},
        max_machine_hours=config.max_machine_hours or submission.max_machine_hours,
    )


def _machines(cluster: Cluster, longest_s: float) -> Iterator[str]:
    """Yields a line for each pool of machines, and one with the machine-hours at most.

    Args:
      cluster: Cluster of the run. Its line of a pool names the alternatives too.
      longest_s: Time limit of the job in seconds, from which the machine-hours are computed.
    """
    for role, pool in cluster.pools.items():
        others = (
            choice.pools[role].shape for choice in cluster.choices[1 : 1 + len(pool.alternatives)]
        )
        yield f"  {role:10}{pool.replicas} x {', else '.join([pool.shape, *others])}"
    hours = longest_s / 3600
    machines = f"{cluster.replicas} machine{'s' if cluster.replicas > 1 else ''}"
    yield f"  at most {hours * cluster.replicas:,.1f} machine-hours ({machines} for {hours:,.1f} h)"


def _ended(config: Config, submission: Submission) -> int:
    """Prints the result of a run that has succeeded.

    Returns:
      The exit code, 3 for a rejected model with --fail-on-reject, else 0.

    Raises:
      UserError: If the evaluation is gone from the bucket or damaged, or Google Cloud refuses a
        request.
      ConnectionError: If Google Cloud does not answer.
    """
    values = submission.values
    path = f"{values['job_dir']}/evaluation.json"
    with parsed_json(path) as evaluation:
        if evaluation is None:
            raise UserError(f"the run has succeeded, but {path} is not there any more")
        decided, metrics = evaluation["decision"], evaluation["metrics"]
    shown = [f"{name} {value:.4g}" for name, value in metrics.items() if isinstance(value, float)]
    print(", ".join(shown))
    print(f"{OUTCOMES[decided['verdict']]}: {decided['why']}")
    if decided["verdict"] != REJECT:
        if values.get("should_predict"):
            print(f"predictions in {values['job_dir']}/predictions")
        registry = open_registry(values["registry"])
        version = registry.version_of(values["name"], submission.run)
        print(f"version {version} of {values['name']} in {registry}")
    return EXIT_REJECTED if config.fail_on_reject and decided["verdict"] == REJECT else 0


def _manage(args: argparse.Namespace, config: Config) -> int:
    """Lists runs, or cancels one, given its name or the id of its job. Returns the exit code, 0.

    Raises:
      UserError: If the project or the location is wrong, no run of this name goes on, or Google
        Cloud refuses a request.
      ConnectionError: If Google Cloud does not answer.
    """
    from pipelines.vertex import client, watch

    check_place(config, ("project", "location"))
    client.connect(config.project, config.location)
    if args.list:
        for job in client.runs():
            state, created = watch.state_of(job).lower(), f"{job.create_time:%Y-%m-%d %H:%M}"
            print(f"{job.name.rpartition('/')[2]}  {state}  {created}  {client.link(job.name)}")
        return 0
    # The name is looked up among runs of this program, since it may be that of another one's job.
    live = [job for job in client.runs() if watch.is_live(job)]
    names = [
        job.name
        for job in live
        if args.cancel in (job.labels.get("run"), job.name.rpartition("/")[2])
    ]
    if not names:
        raise UserError(f"--cancel {args.cancel}: no live run of this program; --list shows them")
    for name in names:
        client.cancel(name)
        print(f"cancelled {name}")
    return 0


if __name__ == "__main__":
    run_cli(main)
