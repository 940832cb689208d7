"""`python -m components.convert.sources.tfds.prepare NAME DATA_DIR [MANUAL_DIR]`: lets TensorFlow Datasets prepare a dataset."""

import os
import sys

from common import lifeline


def main(name: str, data_dir: str, manual_dir: str | None = None) -> str | None:
    """Prepares it. Returns what went wrong, in one line."""
    import tensorflow_datasets as tfds

    if not sys.stderr.isatty():
        tfds.disable_progress_bar()
    config = tfds.download.DownloadConfig(manual_dir=manual_dir, try_download_gcs=False)
    try:
        tfds.builder(name, data_dir=data_dir).download_and_prepare(download_config=config)
    except Exception as error:  # of whatever type, by the dataset's own code
        return f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"


if __name__ == "__main__":
    lifeline.watch(os.getppid(), lambda: os._exit(1))
    sys.exit(main(*sys.argv[1:]))
