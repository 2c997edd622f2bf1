"""Train the sample detector on scenes rendered in memory: ``python -m sample_models.train --help``.

One core suffices: most of the time it sees crops, at the end whole pictures. The schedule follows processor
time, so that a busy machine makes it slower and not worse. Needs the extra ``train``.
"""

from __future__ import annotations

import argparse
import copy
import csv
import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from calib_data import make_scenes, scenes
from sample_models import network, priors, scoring

TRAINING_SEED, VALIDATION_SEED = 1000, 1001
VALIDATION_COUNT = 100
NEGATIVES_PER_POSITIVE = 3


@dataclass(frozen=True, slots=True)
class Options:
    """How to train.

    Attributes:
        minutes: Length of the schedule, in minutes of processor time.
        sizes: Input sizes and the progress up to which each is used; small crops train several times faster.
        pictures: Scenes to render.
        batch: Pictures per step.
        rate: Highest learning rate.
        decay: Weight decay of pointwise and full convolutions; depthwise ones and norms have none.
        threads: Threads of the arithmetic.
        prune: Share of the widest stage's channels to switch off at the start; the rest learns around them.
        folder: For the pool of scenes, checkpoints and the curve.
        start: Checkpoint to start from.
    """

    minutes: float
    sizes: tuple[tuple[int, float], ...]
    pictures: int
    batch: int
    rate: float
    decay: float
    threads: int
    prune: float
    folder: Path
    start: Path | None


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """Rendered scenes: images (n, 320, 320, 3) uint8, boxes and labels per scene."""

    images: NDArray[np.uint8]
    boxes: list[NDArray[np.float32]]
    labels: list[NDArray[np.int64]]


def read_options() -> Options:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=45)
    parser.add_argument("--sizes", type=read_sizes, default="128:0.25,192:0.7,320:1")
    parser.add_argument("--pictures", type=int, default=5000)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--decay", type=float, default=0.02)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--prune", type=float, default=0.0)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--start", type=Path)
    return Options(**vars(parser.parse_args()))


def read_sizes(text: str) -> tuple[tuple[int, float], ...]:
    """Return pairs of input size and progress from ``SIZE:UNTIL,SIZE:UNTIL``."""
    pairs = [part.split(":") for part in text.split(",")]
    return tuple((int(size), float(until)) for size, until in pairs)


def main(options: Options) -> None:
    """Render, train, and keep the averaged weights of every few minutes."""
    options.folder.mkdir(parents=True, exist_ok=True)
    pool = open_pool(options.folder / "pool.npz", TRAINING_SEED, options.pictures, options.threads)
    check = open_pool(options.folder / "check.npz", VALIDATION_SEED, VALIDATION_COUNT, options.threads)
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    train(options, pool, check)


def open_pool(path: Path, seed: int, count: int, workers: int) -> Pool:
    """Return the scenes of a series, rendered now or read back."""
    if not path.exists():
        with ProcessPoolExecutor(workers) as executor:
            made = list(executor.map(partial(scenes.render, seed), range(count), chunksize=20))
        counts = np.asarray([len(scene.labels) for scene in made])
        np.savez(
            path,
            images=np.stack([scene.image for scene in made]),
            boxes=np.concatenate([scene.boxes for scene in made]),
            labels=np.concatenate([scene.labels for scene in made]),
            counts=counts,
        )
    with np.load(path) as stored:
        cuts = np.cumsum(stored["counts"])[:-1]
        return Pool(stored["images"], np.split(stored["boxes"], cuts), np.split(stored["labels"], cuts))


def train(options: Options, pool: Pool, check: Pool) -> None:
    """Run the schedule; write ``curve.csv`` and ``<minutes>.pt`` into the folder."""
    net = network.Detector(len(scenes.CLASS_NAMES)).to(memory_format=torch.channels_last)
    if options.start:
        net.load_state_dict(torch.load(options.start, weights_only=True))
    masks = prune(net, options.prune)
    average = copy.deepcopy(net).eval()
    optimizer = torch.optim.AdamW(parameter_groups(net, options.decay), lr=options.rate, fused=True)
    began, length, saved, step = time.process_time(), options.minutes * 60, 0.0, 0
    losses: list[tuple[float, float]] = []

    def progress() -> float:
        return (time.process_time() - began) / length

    with (options.folder / "curve.csv").open("w", newline="", encoding="utf-8") as file:
        curve = csv.writer(file)
        curve.writerow(["minutes", "step", "rate", "box_loss", "class_loss", "check_ap"])
        for size, batch in prefetch(options, pool, progress):
            if progress() >= 1:
                break
            rate = options.rate * schedule(progress())
            for group in optimizer.param_groups:
                group["lr"] = rate
            losses.append(train_step(net, optimizer, batch, size))
            apply_masks(masks)
            step += 1
            follow(average, net, min(0.995, step / (step + 20)))
            minutes = (time.process_time() - began) / 60
            if minutes - saved >= 3:
                saved = minutes
                box_loss, class_loss = np.mean(losses, 0)
                losses.clear()
                numbers = (
                    f"{rate:.5f}",
                    f"{box_loss:.3f}",
                    f"{class_loss:.3f}",
                    f"{check_score(average, check):.4f}",
                )
                curve.writerow([f"{minutes:.1f}", step, *numbers])
                file.flush()
                torch.save(average.state_dict(), options.folder / f"{minutes:05.1f}.pt")
        curve.writerow([f"{options.minutes:.1f}", step, "0", "", "", f"{check_score(average, check):.4f}"])
    torch.save(average.state_dict(), options.folder / "last.pt")


def parameter_groups(net: nn.Module, decay: float) -> list[dict[str, object]]:
    """Return two groups: full and pointwise kernels with weight decay, all else without, as MobileNets do."""
    decayed, free = [], []
    for parameter in net.parameters():
        is_kernel = parameter.ndim == 4 and parameter.shape[1] > 1
        (decayed if is_kernel else free).append(parameter)
    return [{"params": decayed, "weight_decay": decay}, {"params": free, "weight_decay": 0.0}]


Masks = list[tuple[nn.BatchNorm2d, Tensor]]


@torch.no_grad()
def prune(net: network.Detector, share: float) -> Masks:
    """Choose the channels with the smallest scale in the widest stage's norms, and switch them off.

    Source: Z. Liu et al., "Learning Efficient Convolutional Networks through Network Slimming", 2017. As in
    many deployments the channels are not cut out of the graph afterwards. Their depthwise filters keep
    weights that no longer matter, until folding divides these by the square root of a variance of zero.
    """
    masks = []
    for norm in net.backbone.wide_norms():
        mask = torch.ones_like(norm.weight)
        mask[norm.weight.abs().argsort()[: int(share * len(mask))]] = 0
        masks.append((norm, mask))
    apply_masks(masks)
    return masks


@torch.no_grad()
def apply_masks(masks: Masks) -> None:
    """Keep pruned channels at zero."""
    for norm, mask in masks:
        norm.weight.mul_(mask)
        norm.bias.mul_(mask)


def schedule(progress: float) -> float:
    """Return the learning rate's factor: a short rise, then half a cosine down to 1 %."""
    if progress < 0.03:
        return max(progress / 0.03, 0.01)
    return 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * (progress - 0.03) / 0.97))


Batch = tuple[Tensor, Tensor, Tensor]


def prefetch(options: Options, pool: Pool, progress: Callable[[], float]) -> Iterator[tuple[int, Batch]]:
    """Yield (input size, batch) without end, each made in a thread while the one before trains."""
    rng = np.random.default_rng(7)

    def make() -> tuple[int, Batch]:
        size = next((size for size, until in options.sizes if progress() < until), scenes.SIZE)
        return size, make_batch(rng, pool, size, options.batch)

    with ThreadPoolExecutor(1) as executor:
        waiting = executor.submit(make)
        while True:
            ready = waiting.result()
            waiting = executor.submit(make)
            yield ready


def make_batch(rng: np.random.Generator, pool: Pool, size: int, count: int) -> Batch:
    """Return images (n, 3, size, size), coded boxes' targets (n, N, 4) centre form, classes (n, N)."""
    prior = priors.prior_boxes(size)
    images, boxes, classes = [], [], []
    for index in rng.integers(len(pool.images), size=count):
        image, corners, labels = augment(rng, pool, int(index), size)
        assigned, target = priors.match(corners / np.float32(size), labels, prior)
        images.append(scoring.to_input(image)[0])
        boxes.append(assigned)
        classes.append(target)
    stacked = torch.from_numpy(np.stack(images)).to(memory_format=torch.channels_last)
    return stacked, torch.from_numpy(np.stack(boxes)), torch.from_numpy(np.stack(classes))


def augment(
    rng: np.random.Generator, pool: Pool, index: int, size: int
) -> tuple[NDArray[np.uint8], NDArray[np.float32], NDArray[np.int64]]:
    """Return a scene zoomed, moved, mirrored and recoloured; things mostly outside are dropped."""
    zoom = float(np.exp(rng.uniform(np.log(0.65), np.log(1.3))))
    if size < scenes.SIZE:
        zoom *= float(rng.uniform(0.5, 1.0))
    mirror = -1.0 if rng.random() < 0.5 else 1.0
    slack = size - zoom * scenes.SIZE
    left, top = (rng.uniform(min(0.0, slack), max(0.0, slack)) for _ in range(2))
    shift = left if mirror > 0 else left + zoom * scenes.SIZE
    warp = np.array([[mirror * zoom, 0, shift], [0, zoom, top]], np.float32)
    fill = tuple(int(value) for value in rng.integers(0, 256, 3))
    flags = cv2.INTER_AREA if zoom < 0.8 else cv2.INTER_LINEAR
    image = cv2.warpAffine(pool.images[index], warp, (size, size), flags=flags, borderValue=fill)
    gain = rng.uniform(0.7, 1.3) * rng.uniform(0.9, 1.1, 3)
    levels = np.arange(256)[:, None] * gain + rng.uniform(-15, 15)
    image = cv2.LUT(image, np.clip(levels, 0, 255).astype(np.uint8)[None])
    boxes = pool.boxes[index] * np.float32(zoom)
    boxes[:, 1::2] += np.float32(top)
    boxes[:, 0::2] = boxes[:, 0::2] * np.float32(mirror) + np.float32(shift)
    boxes = boxes[:, [2, 1, 0, 3]] if mirror < 0 else boxes
    whole = (boxes[:, 2:] - boxes[:, :2]).prod(1)
    boxes = np.clip(boxes, 0, size)
    sides = boxes[:, 2:] - boxes[:, :2]
    kept = (sides.prod(1) > 0.35 * whole) & (sides.min(1) > 5)
    return np.asarray(image, np.uint8), boxes[kept], pool.labels[index][kept]


def train_step(
    net: network.Detector, optimizer: torch.optim.Optimizer, batch: Batch, size: int
) -> tuple[float, float]:
    """Take one step; return the box and class losses."""
    images, boxes, classes = batch
    loc, logits = net.train()(images)
    box_loss, class_loss = losses_of(loc, logits, boxes, classes, torch.tensor(priors.prior_boxes(size)))
    optimizer.zero_grad()
    (box_loss + class_loss).backward()
    nn.utils.clip_grad_norm_(net.parameters(), 10.0)
    optimizer.step()
    return box_loss.item(), class_loss.item()


def losses_of(
    loc: Tensor, logits: Tensor, boxes: Tensor, classes: Tensor, prior: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the box loss (smooth L1 on codes plus GIoU on boxes) and the class loss with hard negatives.

    Source: H. Rezatofighi et al., "Generalized Intersection over Union", 2019; SSD for the rest.
    """
    chosen = classes > 0
    count = chosen.sum().clamp(min=1)
    prior = prior.expand(len(boxes), -1, -1)[chosen]
    wanted, got = boxes[chosen], loc[chosen]
    code = torch.cat(
        [
            (wanted[:, :2] - prior[:, :2]) / (prior[:, 2:] * priors.VARIANCES[0]),
            torch.log(wanted[:, 2:].clamp(min=1e-6) / prior[:, 2:]) / priors.VARIANCES[1],
        ],
        1,
    )
    box_loss = nn.functional.smooth_l1_loss(got, code, beta=0.5, reduction="sum") / count / 4
    centre = got[:, :2] * priors.VARIANCES[0] * prior[:, 2:] + prior[:, :2]
    half = torch.exp((got[:, 2:] * priors.VARIANCES[1]).clamp(max=4)) * prior[:, 2:] / 2
    overlap = generalized_iou(
        torch.cat([centre - half, centre + half], 1),
        torch.cat([wanted[:, :2] - wanted[:, 2:] / 2, wanted[:, :2] + wanted[:, 2:] / 2], 1),
    )
    box_loss = box_loss + 2 * (1 - overlap).sum() / count
    wanted_classes = nn.functional.one_hot(classes.clamp(min=0), logits.shape[2] + 1)[..., 1:].to(
        logits.dtype
    )
    entropy = nn.functional.binary_cross_entropy_with_logits(logits, wanted_classes, reduction="none").sum(2)
    background = torch.where(classes == 0, entropy.detach(), -1.0)
    wanted_negatives = (NEGATIVES_PER_POSITIVE * chosen.sum(1)).clamp(20, classes.shape[1])
    # The k-th hardest background of each picture is the least that counts.
    hardest = background.topk(int(wanted_negatives.max()), 1).values
    least = hardest.gather(1, (wanted_negatives - 1)[:, None])
    hard = (background >= least) & (classes == 0)
    return box_loss, entropy[chosen | hard].sum() / count


def generalized_iou(a: Tensor, b: Tensor) -> Tensor:
    """Return the generalized overlap of boxes (n, 4) xyxy, row by row."""
    shared = (torch.minimum(a[:, 2:], b[:, 2:]) - torch.maximum(a[:, :2], b[:, :2])).clamp(min=0).prod(1)
    union = (a[:, 2:] - a[:, :2]).prod(1) + (b[:, 2:] - b[:, :2]).prod(1) - shared
    hull = (torch.maximum(a[:, 2:], b[:, 2:]) - torch.minimum(a[:, :2], b[:, :2])).prod(1)
    return shared / union.clamp(min=1e-9) - (hull - union) / hull.clamp(min=1e-9)


@torch.no_grad()
def follow(average: nn.Module, net: nn.Module, share: float) -> None:
    """Move the averaged weights and statistics towards the trained ones."""
    pairs = list(zip(average.state_dict().values(), net.state_dict().values(), strict=True))
    floats = [(kept, new) for kept, new in pairs if kept.dtype.is_floating_point]
    torch._foreach_lerp_([kept for kept, _ in floats], [new for _, new in floats], 1 - share)
    for kept, new in pairs:
        if not kept.dtype.is_floating_point:
            kept.copy_(new)


@torch.no_grad()
def check_score(net: network.Detector, pool: Pool) -> float:
    """Return COCO AP on scenes that training does not see (nor does the evaluation set hold them)."""
    prior = priors.prior_boxes()
    results = []
    for image in pool.images:
        loc, logits = net(torch.from_numpy(scoring.to_input(image)))
        scores = logits[0].sigmoid().numpy()
        results.append(scoring.detections(scoring.decode(loc[0].numpy(), prior), scores))
    made = [scenes.Scene(*item) for item in zip(pool.images, pool.boxes, pool.labels, strict=True)]
    return float(scoring.average_precision(make_scenes.coco(made), results)[0])


if __name__ == "__main__":
    main(read_options())
