"""PyTorch as a peer, with one thread, channels last, and the data in memory: `tests.bench.torch_fit MODEL NPZ STEPS`.

The same networks and optimizers as ours. Needs PyTorch and NumPy alone, so that it may run in an
environment of its own.
"""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from tests.bench.serve import serve

BATCH = 128


class Cnn(nn.Module):
    """The network of `trainer/models/cnn.py`, on images [N, 1, 28, 28]."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(
            [nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3), nn.Conv2d(64, 64, 3)]
        )
        self.hidden, self.logits = nn.Linear(576, 64), nn.Linear(64, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits [N, classes] of bytes."""
        x = x / 255
        first, second, third = self.convolutions
        x = functional.max_pool2d(functional.relu(first(x)), 2)
        x = functional.max_pool2d(functional.relu(second(x)), 2)
        return self.logits(functional.relu(self.hidden(functional.relu(third(x)).flatten(1))))


class Block(nn.Module):
    """Two convolutions and a shortcut without parameters, as in `trainer/models/resnet.py`."""

    def __init__(self, channels: int, filters: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, filters, 3, stride, padding=1, bias=False)
        self.second = nn.Conv2d(filters, filters, 3, padding=1, bias=False)
        self.norms = nn.ModuleList(
            [nn.BatchNorm2d(filters, eps=1e-5, momentum=0.003) for _ in range(2)]
        )
        self.stride, self.missing = stride, filters - channels

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[N, channels, H, W] to [N, filters, H / stride, W / stride]."""
        shortcut = functional.avg_pool2d(x, self.stride) if self.stride > 1 else x
        if self.missing:
            shortcut = functional.pad(
                shortcut, (0, 0, 0, 0, self.missing // 2, self.missing - self.missing // 2)
            )
        x = functional.relu(self.norms[0](self.first(x)))
        return functional.relu(self.norms[1](self.second(x)) + shortcut)


class ResNet44(nn.Module):
    """The network of `trainer/models/resnet.py` with 44 layers, on images [N, 3, 32, 32]."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.stem, self.norm = (
            nn.Conv2d(3, 16, 3, padding=1, bias=False),
            nn.BatchNorm2d(16, eps=1e-5, momentum=0.003),
        )
        stages = [(16, 16, 1), (16, 32, 2), (32, 64, 2)]
        blocks = [
            Block(i if n == 0 else o, o, s if n == 0 else 1) for i, o, s in stages for n in range(7)
        ]
        self.blocks, self.logits = nn.Sequential(*blocks), nn.Linear(64, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits [N, classes] of bytes."""
        x = functional.relu(self.norm(self.stem(x / 128 - 1)))
        return self.logits(self.blocks(x).mean((2, 3)))


def main(name: str, npz: str, steps: int) -> None:
    """Gathers random batches from the whole split, as ours does."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    data = np.load(npz)
    images = (
        torch.from_numpy(data["image"])
        .permute(0, 3, 1, 2)
        .contiguous(memory_format=torch.channels_last)
    )
    labels = torch.from_numpy(data["label"].astype(np.int64))
    classes = int(labels.max()) + 1
    if name == "cnn":
        model = Cnn(classes)
        optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    else:
        model = ResNet44(classes)
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    model = model.to(memory_format=torch.channels_last).train()

    def lap() -> float:
        for _ in range(steps):
            take = torch.randint(len(labels), (BATCH,))
            optimizer.zero_grad(set_to_none=True)
            functional.cross_entropy(model(images[take].float()), labels[take]).backward()
            optimizer.step()
        return steps * BATCH

    serve(lap)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
