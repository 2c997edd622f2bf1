"""What the candidate was fed, against what the reference was fed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from analyzers.input_relations import find_relation, relation_findings
from analyzers.project import open_models
from analyzers.records import Array
from tests.analyzers.sets import MemorySamples
from tests.networks import PLAIN, PLAIN_SHAPES, build, quantized, samples

MEAN = np.array([0.485, 0.456, 0.406]).reshape(1, 3, 1, 1)
DEVIATION = np.array([0.229, 0.224, 0.225]).reshape(1, 3, 1, 1)
ORDER, LAYOUT, SCALING, OTHER = (
    "preprocessing_channel_order",
    "preprocessing_layout",
    "preprocessing_normalization",
    "malformed_inputs",
)


def pictures(rows: int = 24, columns: int = 40, count: int = 5) -> list[Array]:
    """Return smooth colour pictures in 0..1 whose channels are alike, as those of photographs are."""
    random = np.random.default_rng(3)

    def smooth() -> Array:
        coarse = random.normal(size=(rows // 4, columns // 4))
        wide = np.kron(coarse, np.ones((4, 4)))
        for axis in (0, 1, 0, 1):
            wide = (wide + np.roll(wide, 1, axis)) / 2
        return wide

    found = []
    for _ in range(count):
        shared = smooth()
        picture = np.stack([0.8 * shared + 0.2 * smooth() for _ in range(3)])[np.newaxis]
        found.append((picture - picture.min()) / np.ptp(picture))
    return found


def normalized(picture: Array) -> Array:
    return (picture - MEAN) / DEVIATION


def rounded(array: Array, low: float | None = None, high: float | None = None) -> Array:
    """Return the values as eight bits hold them."""
    low, high = float(array.min()) if low is None else low, float(array.max()) if high is None else high
    step = (high - low) / 255
    return np.clip(np.rint((array - low) / step), 0, 255) * step + low


def as_nhwc(array: Array) -> Array:
    return np.ascontiguousarray(array.transpose(0, 2, 3, 1)).reshape(array.shape)


def read_as_nhwc(array: Array) -> Array:
    n, c, h, w = array.shape
    return array.reshape(n, h, w, c).transpose(0, 3, 1, 2)


FED: dict[str, tuple[Callable[[Array], Array], str, str]] = {
    "bgr": (lambda x: normalized(x)[:, ::-1], ORDER, "reversed (BGR for RGB)"),
    "bgr, rounded": (lambda x: rounded(normalized(x)[:, ::-1]), ORDER, "reversed"),
    "bgr pixels": (lambda x: normalized(x[:, ::-1]), ORDER, "before the normalization with ImageNet's"),
    "gbr": (lambda x: normalized(x)[:, [1, 2, 0]], ORDER, "in the order 1,2,0"),
    "nhwc": (lambda x: as_nhwc(normalized(x)), LAYOUT, "NHWC bytes read as NCHW"),
    "nhwc, rounded": (lambda x: rounded(as_nhwc(normalized(x))), LAYOUT, "NHWC bytes read as NCHW"),
    "nchw": (lambda x: read_as_nhwc(normalized(x)), LAYOUT, "NCHW bytes read as NHWC"),
    "columns first": (lambda x: normalized(x).transpose(0, 1, 3, 2), LAYOUT, "rows and columns swapped"),
    "mirrored": (lambda x: normalized(x)[..., ::-1], LAYOUT, "mirrored left to right"),
    "upside down": (lambda x: normalized(x)[..., ::-1, :], LAYOUT, "upside down"),
    "raw bytes": (lambda x: np.rint(x * 255), SCALING, "normalization is missing (ImageNet's"),
    "raw": (lambda x: x, SCALING, "normalization is missing (ImageNet's"),
    "twice": (lambda x: normalized(normalized(x)), SCALING, "applied twice (ImageNet's"),
    "other mean": (lambda x: (x - 0.5) / 0.5, SCALING, "another scale and offset"),
    "x255": (lambda x: normalized(x) * 255, SCALING, "255 times as large"),
    "/255": (lambda x: normalized(x) / 255, SCALING, "255 times as small"),
    "inverted": (lambda x: normalized(1 - x), SCALING, "inverted"),
    "raw in the range of normalized": (lambda x: rounded(x * 255, -2.1, 2.6), SCALING, "cut off"),
    "moved": (
        lambda x: np.pad(normalized(x), ((0, 0), (0, 0), (2, 0), (3, 0)))[:, :, :-2, :-3],
        LAYOUT,
        "2 rows further down and 3 columns further right",
    ),
    "noisy": (
        lambda x: normalized(x) + np.random.default_rng(0).normal(size=x.shape) * 0.05,
        OTHER,
        "more than rounding",
    ),
    "smaller": (lambda x: normalized(x)[..., ::2, ::2], OTHER, "of shape [1, 3, 12, 20]"),
}


@pytest.mark.parametrize("name", FED)
def test_a_relation_is_named(name: str) -> None:
    feed, cause, words = FED[name]
    found = find_relation([normalized(x) for x in pictures()], [feed(x) for x in pictures()])
    assert found is not None
    assert (found.cause, found.also) == (cause, ())
    assert words in found.words
    assert found.samples == (0, 1, 2, 3, 4)


@pytest.mark.parametrize(
    "feed", [normalized, lambda x: rounded(normalized(x)), lambda x: normalized(x) + 0.005]
)
def test_the_same_up_to_rounding_or_little_noise_is_no_difference(feed: Callable[[Array], Array]) -> None:
    assert find_relation([normalized(x) for x in pictures()], [feed(x) for x in pictures()]) is None


def test_scale_and_offset_are_given_per_channel() -> None:
    found = find_relation([normalized(x) for x in pictures()], [x * 255 for x in pictures()])
    assert found is not None
    assert found.parameters["scale"] == pytest.approx((DEVIATION * 255).ravel(), rel=1e-4)
    assert found.parameters["offset"] == pytest.approx((MEAN * 255).ravel(), rel=1e-4)
    assert found.quality_db > 100
    assert found.as_fed_db < 0


def test_what_was_tried_is_listed_with_its_fit() -> None:
    found = find_relation(pictures(), [x[:, ::-1] for x in pictures()])
    assert found is not None
    tried = found.parameters["tried"]
    assert isinstance(tried, tuple)
    assert str(tried[0]).startswith("channels 2,1,0: ")
    assert any(str(entry).startswith("as fed: ") for entry in tried)


@pytest.mark.parametrize("is_rounded", [False, True])
def test_parts_of_a_combination_are_all_named_the_decisive_one_first(is_rounded: bool) -> None:
    fed = [x[:, ::-1] * 255 for x in pictures()]
    fed = [np.rint(x) for x in fed] if is_rounded else fed
    found = find_relation([normalized(x) for x in pictures()], fed)
    assert found is not None
    assert (found.cause, found.also) == (SCALING, (ORDER,))
    assert "reversed" in found.words
    found = find_relation([normalized(x) for x in pictures()], [as_nhwc(x) for x in fed])
    assert found is not None
    assert (found.cause, found.also) == (LAYOUT, (SCALING, ORDER))


def test_only_the_samples_that_differ_are_named() -> None:
    ours = [normalized(x) for x in pictures()]
    theirs = [x[:, ::-1] if i == 3 else x for i, x in enumerate(ours)]
    found = find_relation(ours, theirs)
    assert found is not None
    assert (found.cause, found.samples) == (ORDER, (3,))


def test_samples_in_another_order_are_told_from_unrelated_ones() -> None:
    ours = [normalized(x) for x in pictures()]
    found = find_relation(ours, [ours[i] for i in (0, 4, 2, 3, 1)])
    assert found is not None
    assert (found.cause, found.samples) == (OTHER, (1, 4))
    assert found.parameters["samples_found_there"] == (4, 1)
    moved = find_relation(ours, [ours[i] for i in (1, 2, 3, 4, 0)])
    assert moved is not None
    assert "1 further on" in moved.words
    others = [normalized(x) for x in pictures(count=10)[5:]]
    unrelated = find_relation(ours, others)
    assert unrelated is not None
    assert "unrelated" in unrelated.words


def test_another_fill_of_the_border_is_named() -> None:
    border = ((0, 0), (0, 0), (4, 4), (0, 0))
    ours = [np.pad(x, border) for x in pictures()]
    found = find_relation(ours, [np.pad(x, border, constant_values=0.447) for x in pictures()])
    assert found is not None
    assert "filled with 0.447 where the reference has 0" in found.words


@pytest.mark.parametrize(
    "shape", [(5,), (1, 16), (1, 8, 16), (3, 20, 20), (1, 2, 8, 8, 8), (1, 64, 6, 6), (1, 300)]
)
def test_every_rank_is_understood(shape: tuple[int, ...]) -> None:
    random = np.random.default_rng(0)
    ours = [random.normal(size=shape).astype(np.float32) for _ in range(4)]
    assert find_relation(ours, [rounded(x) for x in ours]) is None
    larger = find_relation(ours, [x * 255 for x in ours])
    assert larger is not None
    assert larger.cause == SCALING
    turned = find_relation(ours, [np.flip(x) for x in ours])
    assert turned is not None
    assert turned.cause in {ORDER, LAYOUT}


def test_samples_may_differ_in_size_from_each_other() -> None:
    ours = [*pictures(24, 40, 2), *pictures(16, 32, 2)]
    found = find_relation(ours, [as_nhwc(x) for x in ours])
    assert found is not None
    assert found.words == "NHWC bytes read as NCHW"


def test_integers_must_be_equal() -> None:
    ours = [np.arange(1000, 1012).reshape(1, 12) + 50 * i for i in range(3)]
    assert find_relation(ours, ours) is None
    assert find_relation(ours, [x + 1 for x in ours]) is not None


def test_nothing_is_found_in_constant_or_empty_inputs() -> None:
    zeros = [np.zeros((1, 3, 8, 8), np.float32)] * 3
    assert find_relation(zeros, zeros) is None
    assert find_relation([], []) is None
    assert find_relation(zeros, [x + 1 for x in zeros]) is not None


def test_missing_values_on_both_sides_are_no_difference() -> None:
    ours = pictures(count=1)[0]
    ours[0, 0, 0, 0] = np.nan
    assert find_relation([ours], [ours.copy()]) is None


def test_findings_name_the_input_and_blame_no_layer(tmp_path: Path) -> None:
    model = build(PLAIN, PLAIN_SHAPES)
    pair = open_models(*quantized(model, tmp_path))
    feeds = samples(model)
    same = MemorySamples(feeds)
    assert relation_findings(pair, same, MemorySamples(feeds)) == ()
    reversed_ = MemorySamples([{"image": f["image"][:, ::-1]} for f in feeds])
    (finding,) = relation_findings(pair, same, reversed_)
    assert (finding.cause, finding.layers, finding.severity) == (ORDER, (), "error")
    assert "'image'" in finding.message
    assert finding.evidence["channel_order"] == (2, 1, 0)


def test_of_several_inputs_only_the_one_that_differs_is_named(tmp_path: Path) -> None:
    text = """
    net (float[1,3,8,8] left, float[1,3,8,8] right) => (float[1,4,8,8] out)
    {
        [a] x = Conv<kernel_shape=[1,1]>(left, wa)
        [b] y = Conv<kernel_shape=[1,1]>(right, wb)
        [add] out = Add(x, y)
    }
    """
    model = build(text, {"wa": (4, 3, 1, 1), "wb": (4, 3, 1, 1)})
    pair = open_models(*quantized(model, tmp_path))
    feeds = samples(model)
    fed = MemorySamples([{**f, "right": f["right"] * 255} for f in feeds])
    (finding,) = relation_findings(pair, MemorySamples(feeds), fed)
    assert (finding.cause, finding.evidence["input"]) == (SCALING, "right")


def test_a_candidate_that_declares_its_channels_last_is_read_as_it_declares(tmp_path: Path) -> None:
    model = build(PLAIN, PLAIN_SHAPES)
    reference, candidate = quantized(model, tmp_path)
    turned = onnx.load(candidate)
    for node in turned.graph.node:
        node.input[:] = ["turned" if name == "image" else name for name in node.input]
    turned.graph.node.insert(
        0, onnx.helper.make_node("Transpose", ["image"], ["turned"], name="turn", perm=[0, 3, 1, 2])
    )
    turned.graph.input[0].CopyFrom(
        onnx.helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT, [1, 16, 16, 3])
    )
    onnx.save(turned, candidate)
    pair = open_models(reference, candidate)
    feeds = samples(model)
    same = MemorySamples(feeds)
    last = MemorySamples([{"image": f["image"].transpose(0, 2, 3, 1)} for f in feeds])
    assert relation_findings(pair, same, last) == ()
    bytes_ = MemorySamples([{"image": f["image"].reshape(1, 16, 16, 3)} for f in feeds])
    (finding,) = relation_findings(pair, same, bytes_)
    assert finding.cause == LAYOUT
