"""From an image to the network's input."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from analyzers.errors import TaskError
from analyzers.records import Array, TensorSpec
from analyzers.tasks.preprocess import Preprocess, prepare, resolve


def photo(height: int = 90, width: int = 121, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def test_yolox_input_is_what_the_authors_code_makes() -> None:
    image = photo()
    ratio = min(64 / 90, 80 / 121)
    resized = cv2.resize(image, (int(121 * ratio), int(90 * ratio)), interpolation=cv2.INTER_LINEAR)
    padded = np.full((64, 80, 3), 114, np.uint8)
    padded[: resized.shape[0], : resized.shape[1]] = resized
    expected = padded.transpose(2, 0, 1)[None].astype(np.float32)
    options = Preprocess(size=(64, 80), resize="letterbox", placement="top-left", channels="BGR")
    made, box = prepare(image, options)
    np.testing.assert_array_equal(made, expected)
    assert made.dtype == np.float32
    assert (box.scale_x, box.scale_y, box.pad_x, box.pad_y) == (ratio, ratio, 0.0, 0.0)
    assert (box.height, box.width, box.input_height, box.input_width) == (90, 121, 64, 80)


def test_a_centred_letterbox_rounds_its_size_and_pads_both_sides() -> None:
    image = photo(90, 121)
    made, box = prepare(image, Preprocess(size=(81, 80), resize="letterbox", pad_value=7, channels="BGR"))
    ratio = 80 / 121
    height = round(90 * ratio)  # 60, where rounding down gives 59
    assert (height, int(90 * ratio)) == (60, 59)
    top = (81 - 60) // 2
    assert (box.pad_x, box.pad_y) == (0.0, float(top))
    resized = cv2.resize(image, (80, 60), interpolation=cv2.INTER_LINEAR)
    np.testing.assert_array_equal(made[0, :, top : top + 60], resized.transpose(2, 0, 1))
    assert set(made[0, :, :top].ravel().tolist()) == {7.0}
    assert set(made[0, :, top + 60 :].ravel().tolist()) == {7.0}


def test_a_point_of_the_image_is_found_where_the_letterbox_says() -> None:
    image = np.zeros((100, 150, 3), np.uint8)
    cv2.circle(image, (60, 40), 6, (255, 255, 255), -1)
    for options in (
        Preprocess(size=(200, 200), resize="letterbox"),
        Preprocess(size=(200, 200), resize="letterbox", placement="top-left"),
        Preprocess(size=(120, 300)),
        Preprocess(size=(90, 90), resize="crop", crop_fraction=0.9),
    ):
        made, box = prepare(image, options)
        rows, columns = np.nonzero(made[0, 0] > 128 if options.resize != "letterbox" else made[0, 0] == 255)
        x = (columns.mean() + 0.5 - box.pad_x) / box.scale_x
        y = (rows.mean() + 0.5 - box.pad_y) / box.scale_y
        assert abs(x - 60.5) < 1.0
        assert abs(y - 40.5) < 1.0


def test_a_crop_keeps_the_middle() -> None:
    image = photo(100, 160)
    made, box = prepare(image, Preprocess(size=(70, 70), resize="crop", crop_fraction=0.875, channels="BGR"))
    resized = cv2.resize(image, (128, 80), interpolation=cv2.INTER_LINEAR)
    np.testing.assert_array_equal(made[0], resized[5:75, 29:99].transpose(2, 0, 1))
    assert (box.pad_x, box.pad_y) == (-29.0, -5.0)


def test_values_are_scaled_then_shifted_then_divided_per_channel() -> None:
    image = photo(8, 8)
    options = Preprocess(size=(8, 8), scale=1 / 255, mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.4), layout="NHWC")
    made, _ = prepare(image, options)
    expected = (image[..., ::-1] / 255.0 - [0.4, 0.5, 0.6]) / [0.2, 0.3, 0.4]
    np.testing.assert_allclose(made[0], expected, rtol=1e-5, atol=1e-5)


def test_integer_inputs_are_rounded_and_saturated() -> None:
    image = np.full((4, 4, 3), 200, np.uint8)
    made, _ = prepare(image, Preprocess(size=(4, 4), mean=(128.0,), scale=1.5, dtype="int8"))
    assert made.dtype == np.int8
    assert set(made.ravel().tolist()) == {127}
    made, _ = prepare(image, Preprocess(size=(4, 4), scale=0.0127, dtype="uint8"))
    assert set(made.ravel().tolist()) == {3}


def test_gray_networks_get_one_channel() -> None:
    image = photo(8, 8)
    made, _ = prepare(image, Preprocess(size=(8, 8), channels="GRAY"))
    np.testing.assert_array_equal(made[0, 0], cv2.cvtColor(image, cv2.COLOR_BGR2GRAY))


def test_an_extreme_shape_keeps_at_least_one_pixel() -> None:
    made, _ = prepare(photo(2, 2000), Preprocess(size=(32, 32), resize="letterbox"))
    assert made.shape == (1, 3, 32, 32)


def test_size_and_type_come_from_the_network_where_the_task_leaves_them_out() -> None:
    resolved = resolve(Preprocess(), TensorSpec("x", "float16", (None, 3, 24, 32)), where="w")
    assert (resolved.size, resolved.dtype) == ((24, 32), "float16")
    dynamic = TensorSpec("x", "float32", (1, None, None, 3))
    assert resolve(Preprocess(size=(5, 6), layout="NHWC"), dynamic, where="w").size == (5, 6)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("size", (0, 3)),
        ("pad_value", 256),
        ("std", (1.0, 0.0, 1.0)),
        ("mean", (1.0, 2.0)),
        ("crop_fraction", 0.0),
    ],
)
def test_values_that_cannot_be_meant_are_refused(key: str, value: object) -> None:
    with pytest.raises(TaskError, match=f"'{key}'"):
        Preprocess(**{key: value})  # type: ignore[arg-type]
