"""Where the publishers of datasets offer the files.

Sizes and checksums are those that TensorFlow Datasets publishes for the same files; that of the taxi trips is of the
file in the commit that its URL names.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence


@dataclasses.dataclass(frozen=True, kw_only=True)
class RemoteFile:
    """A file that is to be had at any of the URLs, its size, and its SHA-256 (hexadecimal)."""

    urls: tuple[str, ...]
    num_bytes: int
    sha256: str

    @property
    def name(self) -> str:
        """The last part of the URLs."""
        return self.urls[0].rpartition("/")[2]


_IDX_NAMES = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")


def _idx(bases: Sequence[str], files: Iterable[tuple[int, str]]) -> tuple[RemoteFile, ...]:
    """The four IDX files, which each of the bases offers."""
    return tuple(
        RemoteFile(urls=tuple(f"{base}{name}-ubyte.gz" for base in bases), num_bytes=num_bytes, sha256=sha256)
        for name, (num_bytes, sha256) in zip(_IDX_NAMES, files, strict=True)
    )


def _cifar(name: str, num_bytes: int, sha256: str) -> tuple[RemoteFile, ...]:
    bases = ("https://www.cs.toronto.edu/~kriz/", "https://cave.cs.toronto.edu/kriz/")
    return (RemoteFile(urls=tuple(base + name for base in bases), num_bytes=num_bytes, sha256=sha256),)


OFFERED: Mapping[str, tuple[RemoteFile, ...]] = {
    "mnist": _idx(
        ("https://storage.googleapis.com/cvdf-datasets/mnist/", "https://ossci-datasets.s3.amazonaws.com/mnist/"),
        (
            (9_912_422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
            (28_881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
            (1_648_877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
            (4_542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
        ),
    ),
    "fashion_mnist": _idx(
        (
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        ),
        (
            (26_421_880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
            (29_515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
            (4_422_102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
            (5_148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
        ),
    ),
    "cifar10": _cifar(
        "cifar-10-binary.tar.gz",
        170_052_171,
        "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    ),
    "cifar100": _cifar(
        "cifar-100-binary.tar.gz",
        168_513_733,
        "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
    ),
    "taxi": (
        RemoteFile(
            urls=(
                "https://raw.githubusercontent.com/tensorflow/tfx/58435d68d561e9ba6c657a0ec111adba5176ee98"
                "/tfx/examples/chicago_taxi_pipeline/data/simple/data.csv",
            ),
            num_bytes=1_922_812,
            sha256="cdaf0b5931442ef47693f408f25a37af710aca23fccb90a78f00930e89548805",
        ),
    ),
}
