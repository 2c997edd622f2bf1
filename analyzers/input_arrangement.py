"""Explain how two inputs differ by arrangement, order of channels and scaling."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analyzers.input_channels import ChannelFit, channel_fits
from analyzers.input_layouts import Layout, channel_axis, layouts
from analyzers.input_scaling import Extent, reordered_before, scaling_words
from analyzers.records import Fact

Values = NDArray[np.float64]

MOST_UNEXPLAINED = 0.01  # a relation leaves at most this share of the energy: 20 dB
_AS_GOOD = 4.0  # relations that leave up to four times the rest of the best one (6 dB) fit alike
_EXACT = 1e-6  # rests below it are float32 arithmetic
_LEVELS = 8  # a grid of fewer steps is no coarse rounding but another picture
_FITTED_SAMPLES = 4
_POSITIONS = 1 << 14  # per sample and channel
_PRODUCTS = 1 << 19  # positions times channels, where there are many channels
_SHOWN = 5
_LISTED_CHANNELS = 16


@dataclass(frozen=True, slots=True, eq=False)
class Relation:
    """How the candidate's input differs.

    Attributes:
        cause: Label of the cause.
        words: What the difference is.
        parameters: Its numbers, and how well other relations fit.
        quality_db: How well it explains the candidate's input: its spread over the unexplained rest.
        fix: What to do.
        also: Labels of further causes that are part of it.
        as_fed_db: SQNR of the candidate's input taken as it is; nan for another shape.
        samples: Places of the samples that differ.
    """

    cause: str
    words: str
    parameters: dict[str, Fact]
    quality_db: float
    fix: str
    also: tuple[str, ...] = ()
    as_fed_db: float = math.nan
    samples: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class _Hypothesis:
    layout: Layout
    fit: ChannelFit

    @property
    def cost(self) -> float:
        return self.layout.cost + self.fit.cost

    def words(self) -> str:
        parts = [self.layout.words]
        if self.fit.is_reordered:
            parts.append(f"channels {_listed(self.fit.order)}")
        parts.append({"same": "", "channels": "scaled per channel"}.get(self.fit.kind, "scaled"))
        return ", ".join(p for p in parts if p) or "as fed"


def decibels(unexplained: float) -> float:
    """Return a share of energy as a signal to noise ratio, at most 200 dB."""
    return 200.0 if unexplained <= 1e-20 else -10 * math.log10(unexplained)


def explain_arrangement(ours: Sequence[Values], theirs: Sequence[Values]) -> Relation | None:
    """Try all arrangements and channel orders, with and without scaling."""
    if any(a.size != b.size for a, b in zip(ours, theirs, strict=True)):
        return None
    found = list(_hypotheses(ours, theirs))
    best = min((h.fit.unexplained for h in found), default=math.inf)
    if best > MOST_UNEXPLAINED:
        return None
    room = max(_AS_GOOD * best, 2 * _rounding(theirs), _EXACT)
    chosen = min((h for h in found if h.fit.unexplained <= room), key=lambda h: (h.cost, h.fit.unexplained))
    return _as_relation(chosen, found, ours, theirs)


def _hypotheses(ours: Sequence[Values], theirs: Sequence[Values]) -> Iterator[_Hypothesis]:
    places = np.unique(np.linspace(0, len(ours) - 1, _FITTED_SAMPLES).astype(int))
    chosen = [(ours[i], theirs[i]) for i in places]
    first, second = chosen[0]
    chosen = [(a, b) for a, b in chosen if a.ndim == first.ndim and b.ndim == second.ndim]
    axis = channel_axis(first.shape)
    for layout in layouts(first.shape, second.shape):
        columns = []
        for a, b in chosen:
            same = next((o for o in layouts(a.shape, b.shape) if _is_same_move(o, layout)), None)
            if same is not None:
                columns.append((_rows(a, axis), _rows(same.undo(b), axis)))
        if len(columns) < len(chosen):
            continue
        channels = {len(a) for a, _ in columns}
        if len(channels) > 1:
            continue
        for fit in channel_fits(*(np.concatenate(side, axis=1) for side in zip(*columns, strict=True))):
            yield _Hypothesis(layout, fit)


def _is_same_move(a: Layout, b: Layout) -> bool:
    return (a.order, a.is_reread, a.flipped) == (b.order, b.is_reread, b.flipped)


def _rows(array: Values, axis: int | None) -> Values:
    """Return a spread choice of positions as ``(channels, positions)``."""
    rows = (
        array.reshape(1, -1) if axis is None else np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1)
    )
    limit = max(64, min(_POSITIONS, _PRODUCTS // max(1, len(rows))))
    step = max(1, -(-rows.shape[1] // limit)) | 1  # an even step would walk down the same few columns
    return rows[:, ::step]


def grid_step(array: Values) -> float | None:
    """Return the step of the grid that all values lie on; None if they lie on none that is coarse."""
    values = np.unique(array.reshape(-1)[: 1 << 18])
    if not _LEVELS < values.size < (1 << 14):
        return None
    gaps = np.diff(values)
    step = float(gaps.min())
    reach = float(values[-1] - values[0])
    if step < 1e-5 * reach:  # no integer type in use has that many levels in the range of a picture
        return None
    whole = np.rint(gaps / step)
    return (
        step if bool((np.abs(gaps - whole * step) <= 0.02 * step * np.maximum(1, whole**0.5)).all()) else None
    )


def _rounding(theirs: Sequence[Values]) -> float:
    """Return the share of the candidate's spread that rounding to its grid makes up."""
    step = grid_step(theirs[0])
    spread = float(np.var(theirs[0]))
    return 0.0 if step is None or spread == 0 else step**2 / 12 / spread


def _as_relation(
    chosen: _Hypothesis, found: Sequence[_Hypothesis], ours: Sequence[Values], theirs: Sequence[Values]
) -> Relation:
    layout, fit = chosen.layout, chosen.fit
    parts: dict[str, tuple[str, str]] = {}
    if layout.words:
        parts["preprocessing_layout"] = (layout.words, f"undo '{layout.words}' before feeding the candidate")
    theirs_extent = _extent(theirs)
    before = reordered_before(fit.scale, fit.offset, fit.order, theirs_extent.high - theirs_extent.low)
    if fit.is_reordered:
        words, undo = _order_words(fit.order)
        words += f", before the normalization with {before}" if before and fit.kind == "channels" else ""
        parts["preprocessing_channel_order"] = (words, undo)
    if fit.kind != "same" and not (fit.is_reordered and before):
        words = scaling_words(fit.scale, fit.offset, _extent(ours), theirs_extent)
        parts["preprocessing_normalization"] = (
            words,
            "normalize the candidate's input as the reference's is",
        )
    if not parts:
        return _close(chosen)
    causes = sorted(parts, key=lambda cause: _left_by(cause, chosen, found))
    return Relation(
        cause=causes[0],
        words="; ".join(parts[cause][0] for cause in causes),
        parameters={**_numbers(chosen), "tried": _tried(found)},
        quality_db=decibels(fit.unexplained),
        fix="In the preprocessing: " + ", and ".join(parts[cause][1] for cause in causes),
        also=tuple(causes[1:]),
    )


def _order_words(order: tuple[int, ...]) -> tuple[str, str]:
    if order == tuple(reversed(range(len(order)))):
        name = " (BGR for RGB)" if len(order) == 3 else ""
        return f"channels are reversed{name}", f"reverse the channel order{name}"
    return (
        f"channels are in the order {_listed(order)}",
        "feed the candidate its channels in the reference's order",
    )


def _left_by(cause: str, chosen: _Hypothesis, found: Sequence[_Hypothesis]) -> float:
    """Return what stays unexplained if only this part of the relation is taken into account."""
    if cause == "preprocessing_layout":
        return -1.0  # nothing else can be told before the arrangement is right
    wants_order = cause == "preprocessing_channel_order"
    return min(
        (
            h.fit.unexplained
            for h in found
            if h.layout is chosen.layout
            and (h.fit.kind == "same") == wants_order
            and h.fit.order == (chosen.fit.order if wants_order else tuple(range(len(h.fit.order))))
        ),
        default=math.inf,
    )


def _numbers(chosen: _Hypothesis) -> dict[str, Fact]:
    fit = chosen.fit
    numbers: dict[str, Fact] = {}
    if chosen.layout.words:
        numbers["axes"] = chosen.layout.order
    if fit.is_reordered:
        numbers["channel_order"] = fit.order[:_LISTED_CHANNELS]
    if fit.kind != "same":
        count = 1 if fit.kind != "channels" else _LISTED_CHANNELS
        numbers["scale"] = tuple(float(f"{v:.6g}") for v in fit.scale[:count])
        numbers["offset"] = tuple(float(f"{v:.6g}") for v in fit.offset[:count])
    return numbers


def _tried(found: Sequence[_Hypothesis]) -> tuple[str, ...]:
    """Return what was tried and how well it fits: the best of every arrangement and order, and as fed."""
    best: dict[tuple[str, tuple[int, ...]], _Hypothesis] = {}
    for hypothesis in found:
        key = (hypothesis.layout.words, hypothesis.fit.order)
        known = best.get(key)
        if known is None or hypothesis.fit.unexplained < known.fit.unexplained / _AS_GOOD:
            best[key] = hypothesis
    ranked = sorted(best.values(), key=lambda h: h.fit.unexplained)[:_SHOWN]
    as_fed = [h for h in found if not h.layout.words and not h.fit.is_reordered and h.fit.kind == "same"]
    shown = [*ranked, *(h for h in as_fed if h not in ranked)]
    return tuple(f"{h.words()}: {decibels(h.fit.unexplained):.1f} dB" for h in shown)


def _close(chosen: _Hypothesis) -> Relation:
    quality = decibels(chosen.fit.unexplained)
    return Relation(
        cause="malformed_inputs",
        words=f"the same up to {quality:.0f} dB, more than rounding: another decoder, resizing or padding",
        parameters={},
        quality_db=quality,
        fix="Decode, resize and pad with the same code on both sides",
    )


def _extent(arrays: Sequence[Values]) -> Extent:
    return Extent(min(float(a.min()) for a in arrays), max(float(a.max()) for a in arrays))


def _listed(order: Sequence[int]) -> str:
    shown = ",".join(str(i) for i in order[:_LISTED_CHANNELS])
    return shown if len(order) <= _LISTED_CHANNELS else shown + ",..."
