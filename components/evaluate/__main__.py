"""Evaluates a model from the command line: `python -m components.evaluate --help`."""

from __future__ import annotations

import os
from collections.abc import Sequence

from trainer.base.errors import Parser, UserError, run_cli
from trainer.base.quiet import without_advice


def main(argv: Sequence[str] | None = None) -> int:
    p = Parser(
        prog="components.evaluate",
        description="Scores an exported model on a split it was not trained on, judges it, and writes evaluation.json "
        "and report.html.",
    )
    p.add_argument("--model-dir", required=True, help="the SavedModel, <job-dir>/model")
    p.add_argument("--data-dir", required=True, help="a dataset made by components.convert")
    p.add_argument("--output", required=True, help="a directory; made when it is not there")
    p.add_argument("--split", choices=("test", "validation"), default="test", help="to score")
    p.add_argument("--min-accuracy", type=float, default=0.0, help="of a model worth a version")
    p.add_argument("--min-auc", type=float, default=0.0, help="the same, area under the ROC curve of two classes")
    p.add_argument("--registry", default="", help="compare with the champion in this registry")
    p.add_argument("--name", default="", help="of the model in the registry")
    args = p.parse_args(argv)
    if args.registry and not args.name:
        raise UserError("--registry needs the --name of the model in it")
    with without_advice():
        from components.evaluate.evaluate import FILE, REPORT, evaluate
    result = evaluate(**vars(args))
    metrics = result.score.metrics
    figures = ", ".join(f"{name} {value:.4f}" for name, value in metrics.items() if name != "examples")
    print(
        f"{result.dataset} {result.split}: {figures} over {metrics['examples']} examples "
        f"({result.baseline['rule']} has {result.metric} {result.baseline[result.metric]:.4f})"
    )
    print(f"{result.decision.verdict}: {'; '.join(result.decision.reasons)}")
    print(f"wrote {os.path.join(args.output, FILE)} and {os.path.join(args.output, REPORT)}")
    return 0


if __name__ == "__main__":
    run_cli(main)
