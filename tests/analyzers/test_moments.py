"""Moments against float64 references, and their algebra."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from analyzers import measure as measuring
from analyzers import moments
from analyzers.measure import measure
from analyzers.moments import Moments
from analyzers.records import Array, Quantization, Slice

FLOATS = st.floats(-1e6, 1e6, width=32) | st.sampled_from([np.nan, np.inf, -np.inf, 0.0])


def values(shape: tuple[int, ...], *, seed: int = 0, dtype: str = "float32") -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def expected(a: Array, b: Array) -> dict[str, float]:
    """The same statistics the slow and obvious way."""
    finite = np.isfinite(a) & np.isfinite(b)
    x, y = a[finite].astype(np.float64), b[finite].astype(np.float64)
    found = {
        "size": a.size,
        "count": x.size,
        "reference_energy": float(x @ x),
        "candidate_energy": float(y @ y),
        "inner_product": float(x @ y),
        "noise": float((x - y) @ (x - y)),
    }
    if x.size:
        found |= {"reference_mean": float(x.mean()), "candidate_mean": float(y.mean())}
        found |= {"max_error": float(np.abs(x - y).max())}
    return found


def assert_matches(found: Moments, a: Array, b: Array) -> None:
    for name, wanted in expected(a, b).items():
        scale = max(abs(wanted), 1e-30)
        if name == "inner_product":
            scale = float(np.sqrt(found.reference_energy * found.candidate_energy)) or 1.0
        if name.endswith("_mean"):
            scale = max(float(np.sqrt(getattr(found, name.replace("mean", "energy")) / found.count)), 1e-30)
        assert abs(float(getattr(found, name)) - wanted) <= 1e-9 * scale, name


def assert_same(left: Moments, right: Moments) -> None:
    np.testing.assert_allclose(left.table, right.table, rtol=1e-9, atol=1e-6)


@pytest.mark.parametrize(
    "shape",
    [
        (1,),
        (7,),
        (200_003,),
        (3, 5),
        (1000, 3),
        (3, 1000),
        (1, 16, 9, 9),
        (2, 3, 300, 301),
        (1, 2, 400, 400),
        (5, 70, 2, 1),
        (300, 7, 1, 2),
        (1, 3549, 85),
        (2, 700, 300),
        (),
    ],
)
def test_the_pass_agrees_with_plain_numpy_on_any_layout(shape: tuple[int, ...]) -> None:
    a, b = values(shape), values(shape, seed=1)
    found = measure(a, b)
    assert_matches(found.whole, a, b)
    if len(shape) < 2:
        assert found.channels is None
        return
    assert found.channels is not None
    for channel in (0, shape[1] // 2, shape[1] - 1):
        assert_matches(found.channels[channel], a[:, channel], b[:, channel])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "bool"])
def test_any_numeric_type_is_read_without_loss(dtype: str) -> None:
    a, b = (values((2, 4, 50), seed=s, dtype="float64") * 3 for s in (0, 1))
    assert_matches(measure(a.astype(dtype), b.astype(dtype)).whole, a.astype(dtype), b.astype(dtype))


@pytest.mark.parametrize("exponent", range(7))
@pytest.mark.parametrize("shape", [(50_000,), (1, 3, 4000), (1000, 100)])
def test_the_spread_survives_a_mean_that_is_a_million_times_larger(
    shape: tuple[int, ...], exponent: int
) -> None:
    a = values(shape, dtype="float64") + 10.0**exponent
    b = a + 0.01 * values(shape, seed=1, dtype="float64")
    whole = measure(a, b).whole
    assert moments.reference_stats(whole).std == pytest.approx(a.std(), rel=1e-9)
    assert moments.candidate_stats(whole).std == pytest.approx(b.std(), rel=1e-9)
    covariance = float(np.mean((a - a.mean()) * (b - b.mean())))
    assert float(whole.table[moments.CO_SPREAD]) / a.size == pytest.approx(covariance, rel=1e-8)


def test_merged_parts_keep_the_spread_under_a_large_mean() -> None:
    a = values((64, 1000), dtype="float64") + 1e6
    parts = [measure(row, row + 0.5).whole for row in a]
    merged = moments.empty()
    for part in parts:
        merged = moments.merge(merged, part)
    assert moments.reference_stats(merged).std == pytest.approx(a.std(), rel=1e-9)


def test_squares_beyond_float32_do_not_overflow() -> None:
    a = np.full((2, 3), 3e19, dtype=np.float32)
    assert float(measure(a, -a).whole.noise) == pytest.approx(6 * (6e19) ** 2, rel=1e-6)


def test_a_constant_tensor_has_no_spread_at_all() -> None:
    a = np.full((1, 3, 70_000), 114.1, dtype=np.float32)
    whole = measure(a, a).whole
    assert moments.reference_stats(whole).std == 0.0
    assert moments.reference_stats(whole).mean == pytest.approx(float(np.float32(114.1)), rel=1e-15)
    assert bool(whole.is_constant)
    assert float(whole.noise) == 0.0


def test_an_empty_tensor_leaves_the_neutral_element() -> None:
    found = measure(np.zeros((1, 3, 0), np.float32), np.zeros((1, 3, 0), np.float32))
    assert float(found.whole.count) == 0
    assert np.isnan(moments.reference_stats(found.whole).mean)
    other = measure(values((1, 3, 8)), values((1, 3, 8), seed=1))
    assert_same(measuring.merge(found, other).whole, other.whole)


def test_nan_and_infinity_are_counted_by_side_and_kept_out_of_the_sums() -> None:
    a = np.array([[1.0, np.nan, np.nan, np.inf, -np.inf, np.inf, 2.0]], np.float32)
    b = np.array([[1.5, np.nan, 3.0, np.inf, np.inf, 5.0, np.nan]], np.float32)
    whole = measure(a, b).whole
    t = whole.table
    assert (t[moments.REFERENCE_NAN], t[moments.CANDIDATE_NAN], t[moments.BOTH_NAN]) == (2, 2, 1)
    assert (t[moments.REFERENCE_INF], t[moments.CANDIDATE_INF], t[moments.BOTH_INF]) == (3, 2, 1)
    assert (float(whole.size), float(whole.count)) == (7, 1)
    assert float(whole.noise) == 0.25
    assert float(whole.one_sided) == 2 + 3  # two lone NaNs; infinities of other sign count on both sides


def test_a_nan_in_one_channel_leaves_the_others_alone() -> None:
    a, b = values((1, 4, 500)), values((1, 4, 500), seed=1)
    b[0, 2, 17] = np.nan
    found = measure(a, b)
    assert found.channels is not None
    assert found.channels.count.tolist() == [500, 500, 499, 500]
    assert_matches(found.channels[2], a[:, 2], b[:, 2])
    assert_matches(found.whole, a, b)


def quantized(dtype: str = "uint8", scale: float = 0.02, zero_point: int = 128) -> Quantization:
    return Quantization(np.array(scale, np.float32), np.array(zero_point), dtype)


def test_codes_are_dequantized_like_the_runtime_does() -> None:
    a = values((1, 8, 40, 40))
    codes = np.clip(np.rint(a / 0.02) + 128, 0, 255).astype(np.uint8)
    real = (codes.astype(np.float32) - np.float32(128)) * np.float32(0.02)
    given_codes = measure(a, codes, quantization=quantized()).whole
    given_floats = measure(a, real).whole
    assert_same(
        Moments(given_codes.table[: moments.SCALED_NOISE]),
        Moments(given_floats.table[: moments.SCALED_NOISE]),
    )
    assert_same(Moments(given_codes.table[moments.MEANS]), Moments(given_floats.table[moments.MEANS]))
    assert np.isnan(float(given_floats.scaled_noise))
    assert np.isnan(float(given_floats.at_limit))


def test_only_what_lies_beyond_the_range_counts_as_outside() -> None:
    a = np.array([-0.2, 0.0, 0.1, 25.5, 25.54, 25.9, 30.0], np.float32)
    codes = np.clip(np.rint(a / 0.1), 0, 255).astype(np.uint8)
    whole = measure(a, codes, quantization=quantized(scale=0.1, zero_point=0)).whole
    assert float(whole.at_limit) == 6  # -0.2, 0 and everything from 25.5 on
    assert float(whole.outside) == 3  # -0.2, 25.9 and 30; the others only round to the limit


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("shape", [(2, 3, 4), (1, 80, 90)])
def test_scales_along_any_axis_are_applied(shape: tuple[int, ...], axis: int) -> None:
    size = shape[axis]
    scale = ((np.arange(size) + 1) / 50).astype(np.float32)
    zero_point = np.arange(size) % 5
    a = values(shape)
    along = [1, 1, 1]
    along[axis] = size
    s, z = scale.reshape(along), zero_point.reshape(along).astype(np.float32)
    codes = np.clip(np.rint(a / s) + z, -128, 127).astype(np.int8)
    whole = measure(a, codes, quantization=Quantization(scale, zero_point, "int8", axis=axis)).whole
    real = (codes.astype(np.float32) - z) * s
    assert_matches(whole, a, real)
    steps = (a.astype(np.float64) - real) / s
    assert float(whole.scaled_noise) == pytest.approx(float((steps**2).sum()), rel=1e-6)
    outside = (a < (-128.5 - z) * s) | (a > (127.5 - z) * s)
    assert float(whole.outside) == outside.sum()


def test_blocked_scales_are_applied() -> None:
    a = values((2, 6, 5))
    scale = np.linspace(0.05, 0.2, 2 * 3 * 5).reshape(2, 3, 5).astype(np.float32)
    full = np.repeat(scale, 2, axis=1)
    codes = np.clip(np.rint(a / full), -8, 7).astype(np.int8)
    given_scale = Quantization(scale, np.zeros((2, 3, 5), np.int64), "int4", axis=1, block_size=2)
    whole = measure(a, codes, quantization=given_scale).whole
    assert_matches(whole, a, codes.astype(np.float32) * full)
    assert float(whole.at_limit) == ((codes == -8) | (codes == 7)).sum()


def test_a_zero_scale_gives_zeros_and_no_error_in_steps() -> None:
    whole = measure(values((1, 4)), np.ones((1, 4), np.uint8), quantization=quantized(scale=0.0)).whole
    assert float(whole.candidate_energy) == 0.0
    assert np.isnan(float(whole.scaled_noise))


def test_a_permuted_candidate_is_compared_in_the_layout_of_the_reference() -> None:
    a = values((1, 4, 6, 5))
    scale = np.linspace(0.01, 0.04, 4, dtype=np.float32)
    codes = np.clip(np.rint(a / scale.reshape(1, 4, 1, 1)), -128, 127).astype(np.int8)
    per_channel = Quantization(scale, np.zeros(4, np.int64), "int8", axis=1)
    last = Quantization(scale, np.zeros(4, np.int64), "int8", axis=3)
    straight = measure(a, codes, quantization=per_channel)
    moved = measure(a, codes.transpose(0, 2, 3, 1), quantization=last, permutation=(0, 3, 1, 2))
    assert straight.channels is not None
    assert moved.channels is not None
    np.testing.assert_array_equal(straight.channels.table, moved.channels.table)


@pytest.mark.parametrize("codes", [False, True])
def test_slices_along_any_axis_are_measured_apart(codes: bool) -> None:
    a = values((2, 6, 85))
    b = np.clip(np.rint(a / 0.02) + 128, 0, 255).astype(np.uint8) if codes else values((2, 6, 85), seed=1)
    real = (b.astype(np.float32) - np.float32(128)) * np.float32(0.02) if codes else b
    wanted = (Slice(2, 0, 4), Slice(2, 4, 5), Slice(1, 2, 6), Slice(0, 1, 2), Slice(3, 0, 1))
    found = measure(a, b, quantization=quantized() if codes else None, slices=wanted).slices
    for part, record in zip(wanted[:4], found[:4], strict=True):
        index = tuple(slice(part.start, part.stop) if d == part.axis else slice(None) for d in range(3))
        assert_matches(record, a[index], real[index])
    assert float(found[4].size) == 0


def test_different_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="shapes"):
        measure(values((2, 3)), values((3, 2)))


def test_channels_are_dropped_where_their_number_changes() -> None:
    merged = measuring.merge(
        measure(values((1, 3, 4)), values((1, 3, 4))), measure(values((1, 5, 4)), values((1, 5, 4)))
    )
    assert merged.channels is None
    assert float(merged.whole.count) == 32


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        hnp.arrays(np.float32, st.tuples(st.just(2), st.just(3), st.integers(0, 5)), elements=FLOATS),
        min_size=2,
        max_size=4,
    ),
    st.randoms(),
)
def test_parts_merge_in_any_order_to_the_moments_of_the_whole(parts: list[Array], random: object) -> None:
    records = [measure(part[:1], part[1:]) for part in parts]
    joined = np.concatenate(parts, axis=2)
    whole = measure(joined[:1], joined[1:])
    for order in itertools.islice(itertools.permutations(records), 6):
        merged = order[0]
        for record in order[1:]:
            merged = measuring.merge(merged, record)
        assert merged.channels is not None
        assert whole.channels is not None
        for left, right in ((merged.whole, whole.whole), (merged.channels, whole.channels)):
            scale = np.maximum(np.abs(right.table), 1e-3)
            scale[moments.SPREADS] += right.count * right.table[moments.MEANS] ** 2
            scale[moments.CO_SPREAD] += np.sqrt(right.reference_energy * right.candidate_energy)
            scale[moments.MEANS] += np.sqrt(
                (right.reference_energy + right.candidate_energy) / np.maximum(right.count, 1)
            )
            with np.errstate(invalid="ignore"):
                same = (left.table == right.table) | (np.isnan(left.table) & np.isnan(right.table))
                assert (same | (np.abs(left.table - right.table) <= 1e-9 * scale)).all()


@settings(max_examples=60, deadline=None)
@given(
    hnp.arrays(np.float64, st.integers(2, 200), elements=st.floats(-1, 1)),
    st.floats(-1e6, 1e6),
    st.floats(1e-3, 1e3),
)
def test_mean_and_deviation_hold_under_any_shift_and_scale(unit: Array, shift: float, scale: float) -> None:
    a = (unit + shift) * scale
    stats = moments.reference_stats(measure(a, a).whole)
    assert stats.mean == pytest.approx(a.mean(), rel=1e-12, abs=1e-12 * scale)
    assert stats.std == pytest.approx(a.std(), rel=1e-6, abs=1e-9 * scale)


@settings(max_examples=30, deadline=None)
@given(hnp.arrays(np.float32, hnp.array_shapes(min_dims=1, max_dims=4, max_side=6), elements=FLOATS))
def test_a_tensor_is_equal_to_itself(a: Array) -> None:
    whole = measure(a, a.copy()).whole
    assert float(whole.noise) == 0.0
    assert float(whole.one_sided) == 0.0
    assert_matches(whole, a, a)
