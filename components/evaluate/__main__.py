"""Evaluates a model from the command line: `python -m components.evaluate --help`."""

import os
from collections.abc import Sequence

from common.cli import Parser, run_cli
from common.pages import figure
from common.quiet import import_keras, without_advice
from components.evaluate.gate import OUTCOMES, REJECT
from components.evaluate.options import Options


def main(argv: Sequence[str] | None = None) -> int:
    p = Parser(
        prog="components.evaluate",
        description="Scores an exported model on a split it was not trained on, judges it, and "
        "writes evaluation.json and report.html.",
    )
    Options.add_flags(p)
    p.add_argument(
        "--fail-on-reject",
        action="store_true",
        help="exit code 3 if the model is rejected, for builds",
    )
    args = p.parse_args(argv)
    options = Options.of(args)
    with without_advice():
        import_keras()
        from components.evaluate.evaluate import FILE, REPORT, evaluate
    result = evaluate(options)
    metrics, baseline, metric = result["metrics"], result["baseline"], result["metric"]
    figures = ", ".join(
        f"{name} {figure(value)}" for name, value in metrics.items() if name != "examples"
    )
    print(
        f"{result['dataset']} {result['split']}: {figures} over {metrics['examples']} examples "
        f"({baseline['rule']} has {metric} {figure(baseline[metric])})"
    )
    decision = result["decision"]
    print(f"{OUTCOMES[decision['verdict']]}: {'; '.join(decision['reasons'])}")
    print(f"wrote {os.path.join(options.output, FILE)} and {os.path.join(options.output, REPORT)}")
    return 3 if args.fail_on_reject and decision["verdict"] == REJECT else 0


if __name__ == "__main__":
    run_cli(main)
