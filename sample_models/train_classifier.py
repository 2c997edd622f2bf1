"""Train the sample classifier: ``python -m sample_models.train_classifier --help``.

It starts from the detector's backbone and sees single things cut out of the training scenes, moved, mirrored
and recoloured. Needs the extra ``train`` and the pool that ``sample_models.train`` rendered.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from calib_data import make_scenes, scenes
from sample_models import network, scoring, train

BATCH = 64


def main() -> None:
    """Train by the clock and write ``classifier.pt`` into the pool's folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--folder", type=Path, required=True, help="where sample_models.train left pool.npz")
    parser.add_argument("--detector", type=Path, required=True, help="checkpoint whose backbone is reused")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    images, labels = cut_out(train.open_pool(options.folder / "pool.npz", train.TRAINING_SEED, 0, 1))
    net = network.Classifier(len(scenes.CLASS_NAMES)).to(memory_format=torch.channels_last)
    net.backbone.load_state_dict(backbone_weights(options.detector))
    fit(net, images, labels, options.minutes * 60)
    torch.save(net.state_dict(), options.folder / "classifier.pt")


def cut_out(pool: train.Pool) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return all crops of a pool (n, 96, 96, 3) and their classes (n,)."""
    images, labels = [], []
    for item in zip(pool.images, pool.boxes, pool.labels, strict=True):
        for image, label in make_scenes.crops(scenes.Scene(*item)):
            images.append(image)
            labels.append(label)
    return np.stack(images), np.asarray(labels)


def backbone_weights(checkpoint: Path) -> dict[str, torch.Tensor]:
    """Return the backbone's part of a detector checkpoint."""
    prefix = "backbone."
    state = torch.load(checkpoint, weights_only=True)
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}


def fit(
    net: network.Classifier, images: NDArray[np.uint8], labels: NDArray[np.int64], seconds: float
) -> None:
    """Train on random batches until the time is up."""
    rng = np.random.default_rng(8)
    optimizer = torch.optim.AdamW(train.parameter_groups(net, 0.02), lr=1e-3)
    began = time.monotonic()
    while (progress := (time.monotonic() - began) / seconds) < 1:
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * train.schedule(progress)
        chosen = rng.integers(len(images), size=BATCH)
        batch = torch.from_numpy(np.stack([augment(rng, images[index]) for index in chosen]))
        logits = net.train()(batch.to(memory_format=torch.channels_last))
        loss = nn.functional.cross_entropy(logits, torch.from_numpy(labels[chosen]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def augment(rng: np.random.Generator, image: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return a crop as network input (3, 96, 96), moved, zoomed, mirrored and recoloured a little."""
    size = make_scenes.CROP_SIZE
    zoom, mirror = rng.uniform(0.85, 1.15), rng.choice([-1.0, 1.0])
    offset = (size / 2) * (1 - zoom * np.array([mirror, 1.0])) + rng.uniform(-6, 6, 2)
    warp = np.array([[mirror * zoom, 0, offset[0]], [0, zoom, offset[1]]], np.float32)
    moved = cv2.warpAffine(image, warp, (size, size), borderMode=cv2.BORDER_REFLECT_101)
    gain = (rng.uniform(0.7, 1.3) * rng.uniform(0.9, 1.1, 3)).astype(np.float32)
    return scoring.to_input(np.clip(moved * gain, 0, 255).astype(np.uint8))[0]


if __name__ == "__main__":
    main()
