"""Asks a model about files: `python -m components.predict --help`."""

from collections.abc import Sequence

from common.cli import run_cli
from common.quiet import import_keras, without_advice
from components.predict.options import Options


def main(argv: Sequence[str] | None = None) -> int:
    options = Options.parse(
        argv,
        "components.predict",
        "Writes what a model predicts for rows of tables, images, or records of a "
        "converted dataset. A row that it refuses is left out, and listed in FILE.errors.jsonl "
        "with what is wrong.",
    )
    with without_advice():
        import_keras()
        from components.predict.predict import predict
    answered, wrong = predict(options)
    print(f"{options.output}: predictions for {answered:,} rows")
    if wrong:
        print(f"{options.errors_file}: {wrong:,} rows are wrong and left out")
    return 0


if __name__ == "__main__":
    run_cli(main)
