"""PyTorch as a peer, one thread, channels last, data in memory: `tools.bench.torch_fit NPZ STEPS`.

The network and optimizer are those of `trainer/models/resnet.py` with 44 layers. Needs PyTorch and
NumPy alone, so that it may run in an environment of its own.
"""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from tools.bench.serve import serve

BATCH = 128


def convolution(channels, filters, stride=1):
    """A convolution without bias, and batch normalisation."""
    filtered = nn.Conv2d(channels, filters, 3, stride, padding=1, bias=False)
    return nn.Sequential(filtered, nn.BatchNorm2d(filters, eps=1e-5, momentum=0.003))


class Block(nn.Module):
    """Two convolutions and a shortcut without parameters."""

    def __init__(self, channels, filters, stride):
        super().__init__()
        self.first = convolution(channels, filters, stride)
        self.second = convolution(filters, filters)
        self.stride, self.missing = stride, (filters - channels) // 2

    def forward(self, x):
        """[N, channels, H, W] to [N, filters, H / stride, W / stride]."""
        shortcut = functional.avg_pool2d(x, self.stride)
        shortcut = functional.pad(shortcut, (0, 0, 0, 0, self.missing, self.missing))
        return functional.relu(self.second(functional.relu(self.first(x))) + shortcut)


def resnet44(classes):
    """Makes logits [N, classes] of images [N, 3, 32, 32]."""
    layers = [convolution(3, 16), nn.ReLU()]
    for channels, filters, stride in ((16, 16, 1), (16, 32, 2), (32, 64, 2)):
        layers.append(Block(channels, filters, stride))
        layers += [Block(filters, filters, 1) for _ in range(6)]
    return nn.Sequential(*layers, nn.AvgPool2d(8), nn.Flatten(), nn.Linear(64, classes))


def main(npz, steps):
    """Gathers random batches from the whole split, as ours does."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    data, layout = np.load(npz), torch.channels_last
    images = torch.from_numpy(data["image"]).permute(0, 3, 1, 2).contiguous(memory_format=layout)
    labels = torch.from_numpy(data["label"].astype(np.int64))
    model = resnet44(int(labels.max()) + 1).to(memory_format=layout).train()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)

    def lap():
        for _ in range(steps):
            take = torch.randint(len(labels), (BATCH,))
            optimizer.zero_grad(set_to_none=True)
            logits = model(images[take].float() / 128 - 1)
            functional.cross_entropy(logits, labels[take]).backward()
            optimizer.step()
        return steps * BATCH

    serve(lap)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
