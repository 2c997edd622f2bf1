"""Name what a scale and an offset between two inputs mean: which normalization is missing or doubled."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

# Means and deviations of values in 0..1 that preprocessing commonly uses; channels red, green, blue.
_KNOWN: tuple[tuple[str, tuple[float, ...], tuple[float, ...]], ...] = (
    ("ImageNet's mean and deviation", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ("CLIP's mean and deviation", (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
    ("mean 0.5, deviation 0.5", (0.5,), (0.5,)),
    ("mean 127.5, deviation 128", (127.5 / 255,), (128 / 255,)),
    ("mean 127, deviation 128", (127 / 255,), (128 / 255,)),
    ("Caffe's means, no deviation", (123.68 / 255, 116.779 / 255, 103.939 / 255), (1 / 255,)),
    ("mean 0.5, no deviation", (0.5,), (1.0,)),
)
_FACTORS = (255.0, 256.0, 128.0, 127.5)
_TOLERANCE = 0.02  # of the scale, and of the candidate's spread for the offset
_MARGIN = 0.05  # of a range of pixels: what interpolation and rounding put beyond it
_BYTE = 255.0
_MOST_DEVIATIONS = 20  # a normalized picture spans no more deviations


@dataclass(frozen=True, slots=True)
class Extent:
    """The smallest and largest value on one side."""

    low: float
    high: float

    def lies_in(self, top: float) -> bool:
        """Tell whether these can be raw pixels from 0 to ``top``."""
        return -_MARGIN * top <= self.low and 0.3 * top < self.high <= (1 + _MARGIN) * top

    def is_within(self, top: float) -> bool:
        """Tell whether none of these is beyond 0 or ``top`` by more than interpolation puts there."""
        return -_MARGIN * top <= self.low and self.high <= (1 + _MARGIN) * top

    def is_small(self, top: float) -> bool:
        """Tell whether these can be pixels up to ``top``, normalized or not."""
        return self.high - self.low <= _MOST_DEVIATIONS * top

    def moved(self, scale: float, offset: float) -> Extent:
        """Return where the values go."""
        ends = (self.low * scale + offset, self.high * scale + offset)
        return Extent(min(ends), max(ends))


def scaling_words(scale: Sequence[float], offset: Sequence[float], ours: Extent, theirs: Extent) -> str:
    """Return in words what ``candidate = scale * reference + offset`` means.

    Args:
        scale: Per candidate channel.
        offset: Likewise.
        ours: Extent of the reference's values.
        theirs: Extent of the candidate's.
    """
    if not any(offset) and len(set(scale)) == 1:
        return _factor_words(scale[0])
    room = max(theirs.high - theirs.low, 1e-12)
    for name, means, deviations in _KNOWN:
        for top in (1.0, _BYTE):
            if theirs.is_within(top) and _is_missing(scale, offset, means, deviations, top, room):
                return f"the normalization is missing ({name}; values up to {top:g})"
            if ours.is_small(top) and _is_applied(scale, offset, means, deviations, top, room):
                return f"{_applied_words(ours)} ({name}; values up to {top:g})"
    return _words_by_extent(scale, offset, ours, theirs)


def reordered_before(
    scale: Sequence[float], offset: Sequence[float], order: Sequence[int], room: float
) -> str:
    """Return the normalization that follows a reordering of channels and explains this scale and offset.

    Pixels that are reordered first are normalized with the mean of the channel in whose place they lie.

    Args:
        scale: Per candidate channel.
        offset: Likewise.
        order: Reference channel of each candidate channel.
        room: Spread of the candidate's values.
    """
    for name, means, deviations in _KNOWN:
        if len(means) != len(order):
            continue
        for mean in _expanded(means, len(order)):
            for spread in _expanded(deviations, len(order)):
                wanted = [
                    (spread[i] / spread[j], (mean[i] - mean[j]) / spread[j]) for j, i in enumerate(order)
                ]
                if _matches(scale, offset, wanted, room):
                    return name
    return ""


def _factor_words(scale: float) -> str:
    for factor in _FACTORS:
        if math.isclose(scale, factor, rel_tol=_TOLERANCE / 8):
            return f"values are {factor:g} times as large: a division is missing"
        if math.isclose(scale, 1 / factor, rel_tol=_TOLERANCE / 8):
            return f"values are {factor:g} times as small: they were divided once more"
    return f"values are multiplied by {scale:.6g}"


def _expanded(values: Sequence[float], channels: int) -> list[list[float]]:
    """Return the values per channel, in both channel orders; empty where their number does not fit."""
    if len(values) == 1:
        return [list(values) * channels]
    return [list(values), list(reversed(values))] if len(values) == channels else []


def _matches(
    scale: Sequence[float],
    offset: Sequence[float],
    wanted: Sequence[tuple[float, float]],
    room: float,
) -> bool:
    return all(
        abs(a - s) <= _TOLERANCE * abs(s) and abs(b - o) <= _TOLERANCE * room
        for a, b, (s, o) in zip(scale, offset, wanted, strict=True)
    )


def _is_missing(
    scale: Sequence[float],
    offset: Sequence[float],
    means: Sequence[float],
    deviations: Sequence[float],
    top: float,
    room: float,
) -> bool:
    """Tell whether the candidate got ``top * (reference * deviation + mean)``."""
    return any(
        _matches(scale, offset, [(top * d, top * m) for m, d in zip(mean, deviation, strict=True)], room)
        for mean in _expanded(means, len(scale))
        for deviation in _expanded(deviations, len(scale))
    )


def _is_applied(
    scale: Sequence[float],
    offset: Sequence[float],
    means: Sequence[float],
    deviations: Sequence[float],
    top: float,
    room: float,
) -> bool:
    """Tell whether the candidate got ``(reference / top - mean) / deviation``."""
    return any(
        _matches(scale, offset, [(1 / (top * d), -m / d) for m, d in zip(mean, deviation, strict=True)], room)
        for mean in _expanded(means, len(scale))
        for deviation in _expanded(deviations, len(scale))
    )


def _applied_words(ours: Extent) -> str:
    if ours.lies_in(1.0) or ours.lies_in(_BYTE):
        return "only the candidate's input is normalized"
    return "the normalization is applied twice"


def _words_by_extent(scale: Sequence[float], offset: Sequence[float], ours: Extent, theirs: Extent) -> str:
    """Judge an unknown mean and deviation by where the values lie."""
    for top in (1.0, _BYTE):
        if theirs.lies_in(top) and ours.low < -_MARGIN:
            return f"the normalization is missing (values up to {top:g})"
        if ours.lies_in(top) and theirs.low < -_MARGIN:
            return f"only the candidate's input is normalized (from values up to {top:g})"
    if all(a > 0 for a in scale):
        before = [ours.moved(1 / a, -b / a) for a, b in zip(scale, offset, strict=True)]
        whole = Extent(min(e.low for e in before), max(e.high for e in before))
        if whole.lies_in(1.0) or whole.lies_in(_BYTE):
            return "the normalization is applied twice"
    if all(a < 0 for a in scale):
        return "values are inverted"
    return "values have another scale and offset, as another mean and deviation give"
