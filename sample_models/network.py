"""The sample networks in PyTorch: a narrow MobileNetV2, an SSD head with a light pyramid.

Needs the extra ``train``. Layers have BatchNorm and ReLU6; residual blocks end linear, as in
M. Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", 2018.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from sample_models import priors

# (expansion, channels, blocks); every stage halves the resolution in its first block.
STAGES = ((1, 16, 1), (3, 24, 3), (4, 48, 3), (4, 80, 3))
STEM = 16
PYRAMID = 48


def conv(inputs: int, outputs: int, *, kernel: int = 1, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Return convolution, BatchNorm, ReLU6."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU6(),
    )


class Block(nn.Module):
    """An inverted residual: expand, filter each channel, project without activation."""

    def __init__(self, inputs: int, outputs: int, *, expansion: int, stride: int) -> None:
        super().__init__()
        wide = inputs * expansion
        self.expand = conv(inputs, wide) if expansion > 1 else nn.Identity()
        self.depthwise = conv(wide, wide, kernel=3, stride=stride, groups=wide)
        self.project = nn.Conv2d(wide, outputs, 1, bias=False)
        self.norm = nn.BatchNorm2d(outputs)
        self.is_residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output, plus its input where shapes allow."""
        y = self.norm(self.project(self.depthwise(self.expand(x))))
        return x + y if self.is_residual else y


class Backbone(nn.Module):
    """Features at strides 8, 16 and 32."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = conv(3, STEM, kernel=3, stride=2)
        channels, stages = STEM, []
        for expansion, outputs, count in STAGES:
            blocks = []
            for number in range(count):
                stride = 2 if number == 0 else 1
                blocks.append(Block(channels, outputs, expansion=expansion, stride=stride))
                channels = outputs
            stages.append(nn.Sequential(*blocks))
        self.stages = nn.ModuleList(stages)

    def wide_norms(self) -> list[nn.BatchNorm2d]:
        """Return the norms before the depthwise convolutions of the last, widest stage."""
        return [block.expand[1] for block in self.stages[-1]]

    def forward(self, x: Tensor) -> list[Tensor]:
        """Return the outputs of the last three stages."""
        x = self.stem(x)
        features = []
        for stage in self.stages:
            x = stage(x)
            features.append(x)
        return features[1:]


class Head(nn.Module):
    """Depthwise convolution and projection: one per stride, for boxes or classes."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.depthwise = conv(PYRAMID, PYRAMID, kernel=3, groups=PYRAMID)
        self.project = nn.Conv2d(PYRAMID, priors.PER_CELL * outputs, 1)
        self.outputs = outputs

    def forward(self, x: Tensor) -> Tensor:
        """Return (batch, cells * priors per cell, outputs)."""
        y = self.project(self.depthwise(x)).permute(0, 2, 3, 1)
        return y.reshape(y.shape[0], -1, self.outputs)


class Detector(nn.Module):
    """Backbone, light top-down pyramid, SSD heads on four strides."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.backbone = Backbone()
        self.lateral = nn.ModuleList(conv(stage[1], PYRAMID) for stage in STAGES[1:])
        self.merge = nn.ModuleList(conv(PYRAMID, PYRAMID, kernel=3, groups=PYRAMID) for _ in range(2))
        self.coarsest = nn.Sequential(
            conv(PYRAMID, PYRAMID, kernel=3, stride=2, groups=PYRAMID), conv(PYRAMID, PYRAMID)
        )
        self.box_heads = nn.ModuleList(Head(4) for _ in priors.STRIDES)
        self.class_heads = nn.ModuleList(Head(classes) for _ in priors.STRIDES)
        for head in self.class_heads:
            nn.init.constant_(head.project.bias, -4.0)  # few priors hold a thing

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return coded boxes (batch, N, 4) and class logits (batch, N, classes) for a sigmoid."""
        fine, middle, coarse = (
            lateral(feature) for lateral, feature in zip(self.lateral, self.backbone(x), strict=True)
        )
        middle = self.merge[1](middle + nn.functional.interpolate(coarse, scale_factor=2.0, mode="nearest"))
        fine = self.merge[0](fine + nn.functional.interpolate(middle, scale_factor=2.0, mode="nearest"))
        levels = (fine, middle, coarse, self.coarsest(coarse))
        boxes = [head(level) for head, level in zip(self.box_heads, levels, strict=True)]
        logits = [head(level) for head, level in zip(self.class_heads, levels, strict=True)]
        return torch.cat(boxes, 1), torch.cat(logits, 1)


class Classifier(nn.Module):
    """The detector's backbone with a pooled linear layer."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.backbone = Backbone()
        self.last = conv(STAGES[-1][1], 192)
        self.linear = nn.Linear(192, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (batch, classes)."""
        return self.linear(self.last(self.backbone(x)[-1]).mean((2, 3)))


class DecodedExport(nn.Module):
    """The detector with its boxes decoded and everything in one output, as many deployments ship it."""

    def __init__(self, detector: Detector) -> None:
        super().__init__()
        self.detector = detector
        boxes = torch.from_numpy(priors.prior_boxes() * np.float32(priors.INPUT_SIZE))[None]
        self.register_buffer("centre", boxes[..., :2].contiguous())
        self.register_buffer("size", boxes[..., 2:].contiguous())

    def forward(self, images: Tensor) -> Tensor:
        """Return (1, N, 4 + classes): centre, width, height in pixels, then scores."""
        loc, logits = self.detector(images)
        centre = loc[..., :2] * (self.size * priors.VARIANCES[0]) + self.centre
        extent = torch.exp(loc[..., 2:] * priors.VARIANCES[1]) * self.size
        return torch.cat([centre, extent, logits.sigmoid()], -1)
