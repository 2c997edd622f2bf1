"""Opening sets of samples: forms, selections, checks against the network's inputs."""

from __future__ import annotations

import io
import zipfile
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import cv2
import numpy as np
import pytest

from analyzers.errors import SampleError, TaskError
from analyzers.records import Array, TensorSpec
from analyzers.sample_checks import non_finite_inputs, non_finite_notice
from analyzers.samples import open_samples
from analyzers.tasks.preprocess import Preprocess
from analyzers.tasks.task import Task

IMAGE = TensorSpec("image", "float32", (1, 3, 8, 8))
IDS = TensorSpec("ids", "int64", (1, 4))
BOTH = (IMAGE, IDS)
TASK = Task("t", "0", Preprocess(size=(8, 8)))


def floats(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def ids(*shape: int) -> Array:
    return np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape)


def write_images(folder: Path, *names: str) -> None:
    for i, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(i).integers(0, 255, (12, 10, 3), dtype=np.uint8)
        assert cv2.imwrite(str(path), pixels)


def code_of(path: Path, specs: tuple[TensorSpec, ...] = BOTH, **kwargs: str) -> str:
    with pytest.raises(SampleError) as caught:
        open_samples(path, specs, **kwargs)  # type: ignore[arg-type]
    return caught.value.code


def test_arrays_named_after_samples_are_fed_exactly_as_stored(tmp_path: Path) -> None:
    path = tmp_path / "in.npz"
    arrays = {f"s{i:03d}::image": floats(1, 3, 8, 8 + i, seed=i) for i in range(3)}
    np.savez(path, **arrays)
    samples = open_samples(path, (TensorSpec("image", "float32", (1, 3, None, None)),))
    assert samples.names == ("s000", "s001", "s002")
    for sample in (samples[i] for i in (2, 0, 1)):
        np.testing.assert_array_equal(sample.feeds["image"], arrays[f"{sample.name}::image"])
        assert sample.image is None


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_leading_axis_of_samples_is_cut_into_batches_of_one(
    tmp_path: Path, save: object, order: str
) -> None:
    images, numbers = np.asarray(floats(5, 3, 8, 8), order=order), ids(5, 4)
    save(tmp_path / "in.npz", image=images, ids=numbers)  # type: ignore[operator]
    samples = open_samples(tmp_path / "in.npz", BOTH)
    assert samples.names == ("s000", "s001", "s002", "s003", "s004")
    for i in (3, 0, 4):
        np.testing.assert_array_equal(samples[i].feeds["image"], images[i : i + 1])
        np.testing.assert_array_equal(samples[i].feeds["ids"], numbers[i : i + 1])


@pytest.mark.parametrize(
    ("wanted", "stored", "count", "fed"),
    [
        ((None, 3, 8, 8), (5, 3, 8, 8), 5, (1, 3, 8, 8)),
        ((1, 3, 8, 8), (5, 1, 3, 8, 8), 5, (1, 3, 8, 8)),
        ((4, 20), (12, 20), 3, (4, 20)),
        ((4, 20), (3, 4, 20), 3, (4, 20)),
        ((3,), (6, 3), 6, (3,)),
        ((), (6,), 6, ()),
    ],
)
def test_the_networks_batch_decides_how_an_array_is_cut(
    tmp_path: Path, wanted: tuple[int | None, ...], stored: tuple[int, ...], count: int, fed: tuple[int, ...]
) -> None:
    array = floats(*stored)
    np.savez(tmp_path / "in.npz", x=array)
    samples = open_samples(tmp_path / "in.npz", (TensorSpec("x", "float32", wanted),))
    assert len(samples) == count
    together = np.stack([samples[i].feeds["x"] for i in range(count)])
    assert together.shape == (count, *fed)
    np.testing.assert_array_equal(together.ravel(), array.ravel())


def test_a_folder_of_npz_holds_one_or_several_samples_in_each_file(tmp_path: Path) -> None:
    np.savez(tmp_path / "b.npz", image=floats(2, 3, 8, 8))
    np.savez(tmp_path / "a.npz", image=floats(1, 3, 8, 8, seed=1))
    (tmp_path / "notes.txt").write_text("x")
    samples = open_samples(tmp_path, (IMAGE,))
    assert samples.names == ("a.npz", "b.npz::s000", "b.npz::s001")
    assert samples[2].feeds["image"].shape == (1, 3, 8, 8)


def test_a_folder_of_images_is_read_in_name_order_with_subfolders(tmp_path: Path) -> None:
    write_images(tmp_path, "b.png", "a.JPG", "sub/c.png", "__MACOSX/b.png", ".hidden.png")
    samples = open_samples(tmp_path, (IMAGE,), task=TASK)
    assert samples.names == ("a.JPG", "b.png", "sub/c.png")
    sample = samples[1]
    assert sample.feeds["image"].shape == (1, 3, 8, 8)
    assert sample.image is not None
    assert (sample.image.height, sample.image.width) == (12, 10)


def test_sets_survive_the_way_to_another_process(tmp_path: Path) -> None:
    write_images(tmp_path / "images", "a.png")
    np.savez_compressed(tmp_path / "in.npz", image=floats(3, 3, 8, 8))
    for path in (tmp_path / "images", tmp_path / "in.npz"):
        samples = open_samples(path, (IMAGE,), task=TASK)
        first = samples[0].feeds["image"]
        again = ForkingPickler.loads(ForkingPickler.dumps(samples))
        assert again.digest == samples.digest
        np.testing.assert_array_equal(again[0].feeds["image"], first)


def test_missing_names_and_misnamed_arrays_are_told_apart(tmp_path: Path) -> None:
    np.savez(tmp_path / "missing.npz", **{"s000::image": floats(1, 3, 8, 8)})
    np.savez(tmp_path / "named.npz", **{"s000::img": floats(1, 3, 8, 8), "s000::ids": ids(1, 4)})
    np.savez(tmp_path / "extra.npz", image=floats(2, 3, 8, 8), ids=ids(2, 4), label=ids(2))
    assert code_of(tmp_path / "missing.npz") == "missing_input"
    assert code_of(tmp_path / "named.npz") == "wrong_input_name"
    assert code_of(tmp_path / "extra.npz") == "wrong_input_name"
    with pytest.raises(SampleError, match=r"no input named 'img'.*Did you mean 'image'"):
        open_samples(tmp_path / "named.npz", BOTH)


def test_the_sample_that_lacks_an_input_is_named(tmp_path: Path) -> None:
    arrays: dict[str, Array] = {f"s{i:03d}::image": floats(1, 3, 8, 8) for i in range(3)}
    arrays |= {f"s{i:03d}::ids": ids(1, 4) for i in range(2)}
    np.savez(tmp_path / "in.npz", **arrays)
    with pytest.raises(SampleError, match=r"s002.*'ids'"):
        open_samples(tmp_path / "in.npz", BOTH)
    np.savez(tmp_path / "stacked.npz", image=floats(3, 3, 8, 8), ids=ids(2, 4))
    with pytest.raises(SampleError, match="Sample 2 has no data for 'ids'") as caught:
        open_samples(tmp_path / "stacked.npz", BOTH)
    assert caught.value.code == "missing_input"


@pytest.mark.parametrize(
    ("shape", "wanted", "hint"),
    [
        ((1, 8, 8, 3), (1, 3, 8, 8), r"NHWC.*\.transpose\(0, 3, 1, 2\)"),
        ((1, 3, 8, 8), (1, 8, 8, 3), r"NCHW.*\.transpose\(0, 2, 3, 1\)"),
        ((3, 8, 8), (1, 3, 8, 8), "batch axis is missing"),
        ((1, 3, 8, 9), (1, 3, None, 8), r"\(1, 3, 8, 9\).*\(1, 3, None, 8\)"),
    ],
)
def test_a_wrong_shape_says_what_is_wrong_with_it(
    tmp_path: Path, shape: tuple[int, ...], wanted: tuple[int | None, ...], hint: str
) -> None:
    np.savez(tmp_path / "in.npz", **{"s000::image": floats(*shape)})
    with pytest.raises(SampleError, match=hint) as caught:
        open_samples(tmp_path / "in.npz", (TensorSpec("image", "float32", wanted),))
    assert caught.value.code == "wrong_shape"


def test_swapped_axes_are_recognised_in_stacked_arrays_too(tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", image=floats(4, 8, 8, 3))
    with pytest.raises(SampleError, match="NHWC"):
        open_samples(tmp_path / "in.npz", (IMAGE,))


def test_rows_that_fill_no_batch_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", x=floats(7, 20))
    assert code_of(tmp_path / "in.npz", (TensorSpec("x", "float32", (4, 20)),)) == "wrong_shape"


def test_a_wrong_dtype_names_both(tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", image=floats(2, 3, 8, 8), ids=ids(2, 4).astype(np.float32))
    with pytest.raises(SampleError, match=r"'ids'.*float32.*int64") as caught:
        open_samples(tmp_path / "in.npz", BOTH)
    assert caught.value.code == "wrong_dtype"


def test_half_and_single_precision_become_what_the_network_reads(tmp_path: Path) -> None:
    images = floats(2, 3, 8, 8)
    images[1, 0, 0, 0] = 1e6
    np.savez(tmp_path / "in.npz", image=images)
    half = open_samples(tmp_path / "in.npz", (TensorSpec("image", "float16", (1, 3, 8, 8)),))
    np.testing.assert_array_equal(half[0].feeds["image"], images[:1].astype(np.float16))
    assert non_finite_inputs(half[1]) == ("image",)
    np.savez(tmp_path / "in.npz", image=images.astype(np.float64))
    assert code_of(tmp_path / "in.npz", (IMAGE,)) == "wrong_dtype"


def test_big_endian_arrays_are_read_as_their_type(tmp_path: Path) -> None:
    array = floats(2, 3, 8, 8)
    np.savez(tmp_path / "in.npz", image=array.astype(">f4"))
    fed = open_samples(tmp_path / "in.npz", (IMAGE,))[1].feeds["image"]
    assert fed.dtype == np.dtype("float32")
    assert fed.dtype.isnative
    np.testing.assert_array_equal(fed, array[1:])


def test_object_arrays_are_refused_without_being_loaded(tmp_path: Path) -> None:
    class Explodes:
        def __reduce__(self) -> tuple[object, ...]:
            return (Path.touch, (tmp_path / "ran",))

    array = np.empty(1, object)
    array[0] = Explodes()
    np.savez(tmp_path / "in.npz", image=array, allow_pickle=True)
    assert code_of(tmp_path / "in.npz", (IMAGE,)) == "unsafe_npz"
    assert not (tmp_path / "ran").exists()


def header(shape: tuple[int, ...]) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"shape": shape, "fortran_order": False, "descr": "<f4"})
    return stream.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(header((10**12,)) + bytes(64), id="claims more than it holds"),
        pytest.param(header((2,)) + bytes(64), id="holds more than it claims"),
        pytest.param(b"no array", id="no header"),
        pytest.param(b"", id="empty member"),
    ],
)
def test_a_member_that_lies_about_itself_is_refused(tmp_path: Path, content: bytes) -> None:
    with zipfile.ZipFile(tmp_path / "in.npz", "w") as archive:
        archive.writestr("s000::image.npy", content)
    assert code_of(tmp_path / "in.npz", (IMAGE,)) == "malformed_inputs"


def test_a_bomb_is_refused_by_its_declared_size(tmp_path: Path) -> None:
    path, head = tmp_path / "in.npz", header((1, 3, 8192, 40960))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("s000::image.npy", head + bytes(1 << 16))
    content = path.read_bytes()
    actual, claimed = (len(head) + (1 << 16)).to_bytes(4, "little"), len(head) + 4 * 3 * 8192 * 40960
    assert content.count(actual) == 2
    path.write_bytes(content.replace(actual, claimed.to_bytes(4, "little")))
    assert code_of(path, (TensorSpec("image", "float32", (1, 3, None, None)),)) == "malformed_inputs"


def test_damaged_values_are_found_when_they_are_read(tmp_path: Path) -> None:
    path = tmp_path / "in.npz"
    np.savez(path, **{"s000::image": floats(1, 3, 32, 32)})
    content = bytearray(path.read_bytes())
    content[-200] ^= 255
    path.write_bytes(content)
    samples = open_samples(path, (TensorSpec("image", "float32", (1, 3, None, None)),))
    with pytest.raises(SampleError, match="s000::image") as caught:
        samples[0]
    assert caught.value.code == "malformed_inputs"


@pytest.mark.parametrize(
    ("content", "hint"),
    [(b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"), (b"PK", "numpy.savez")],
)
def test_a_file_that_is_no_npz_says_what_to_do(tmp_path: Path, content: bytes, hint: str) -> None:
    (tmp_path / "in.npz").write_bytes(content)
    with pytest.raises(SampleError, match=hint) as caught:
        open_samples(tmp_path / "in.npz", (IMAGE,))
    assert caught.value.code == "malformed_inputs"


def test_mixed_forms_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", **{"s000::image": floats(1, 3, 8, 8), "image": floats(2, 3, 8, 8)})
    assert code_of(tmp_path / "in.npz", (IMAGE,)) == "malformed_inputs"
    write_images(tmp_path, "a.png")
    assert code_of(tmp_path, (IMAGE,)) == "malformed_inputs"
    (tmp_path / "in.bin").write_bytes(b"x")
    assert code_of(tmp_path / "in.bin", (IMAGE,)) == "malformed_inputs"


def test_an_empty_set_is_no_set(tmp_path: Path) -> None:
    np.savez(tmp_path / "none.npz")
    np.savez(tmp_path / "zero.npz", image=floats(0, 3, 8, 8))
    np.savez(tmp_path / "one.npz", image=floats(1, 3, 8, 8))
    (tmp_path / "folder").mkdir()
    for name in ("none.npz", "zero.npz", "folder"):
        assert code_of(tmp_path / name, (IMAGE,)) == "zero_samples"
        assert code_of(tmp_path / name, (IMAGE,), role="calibration") == "calibration_empty"
    assert code_of(tmp_path / "one.npz", (IMAGE,), selection="0") == "zero_samples"
    assert code_of(tmp_path / "absent.npz", (IMAGE,)) == "file_absent"


def test_images_need_to_know_how_they_become_tensors(tmp_path: Path) -> None:
    write_images(tmp_path, "a.png")
    with pytest.raises(TaskError) as caught:
        open_samples(tmp_path, (IMAGE,))
    assert caught.value.code == "task_missing"
    assert code_of(tmp_path, (TensorSpec("image", "float32", (1, 3, None, None)),)) == "dynamic_size"


@pytest.mark.parametrize(
    ("preprocess", "specs", "code"),
    [
        (Preprocess(), (TensorSpec("image", "float32", (1, 3, None, None)),), "dynamic_size"),
        (Preprocess(size=(8, 9)), (IMAGE,), "wrong_shape"),
        (Preprocess(layout="NHWC"), (IMAGE,), "wrong_shape"),
        (Preprocess(channels="GRAY"), (IMAGE,), "wrong_shape"),
        (Preprocess(), (TensorSpec("image", "float32", (2, 3, 8, 8)),), "wrong_shape"),
        (Preprocess(), (TensorSpec("image", "float32", (3, 8, 8)),), "wrong_shape"),
        (Preprocess(dtype="uint8"), (IMAGE,), "wrong_dtype"),
        (Preprocess(), (TensorSpec("image", "int64", (1, 3, 8, 8)),), "wrong_dtype"),
        (Preprocess(), BOTH, "missing_input"),
        (Preprocess(input="data"), (IMAGE,), "wrong_input_name"),
    ],
)
def test_a_task_that_does_not_suit_the_network_is_refused(
    tmp_path: Path, preprocess: Preprocess, specs: tuple[TensorSpec, ...], code: str
) -> None:
    write_images(tmp_path, "a.png")
    with pytest.raises(SampleError) as caught:
        open_samples(tmp_path, specs, task=Task("t", "0", preprocess))
    assert caught.value.code == code


def test_an_unreadable_image_is_named(tmp_path: Path) -> None:
    write_images(tmp_path, "a.png")
    (tmp_path / "b.jpg").write_bytes(b"no image")
    (tmp_path / "c.jpg").write_bytes(b"")
    samples = open_samples(tmp_path, (IMAGE,), task=TASK)
    for index, name in ((1, "b.jpg"), (2, "c.jpg")):
        with pytest.raises(SampleError, match=name) as caught:
            samples[index]
        assert caught.value.code == "unreadable_image"


def test_images_are_turned_as_their_exif_data_says(tmp_path: Path) -> None:
    pixels = np.zeros((20, 40, 3), np.uint8)
    pixels[:, :20] = 255
    encoded = cv2.imencode(".jpg", pixels)[1].tobytes()
    exif = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"
    (tmp_path / "a.jpg").write_bytes(
        encoded[:2] + b"\xff\xe1" + (len(exif) + 2).to_bytes(2, "big") + exif + encoded[2:]
    )
    sample = open_samples(tmp_path, (IMAGE,), task=TASK)[0]
    assert sample.image is not None
    assert (sample.image.height, sample.image.width) == (40, 20)
    assert sample.feeds["image"][0, :, 1].min() > 250
    assert sample.feeds["image"][0, :, 6].max() < 5


def test_the_digest_follows_content_selection_and_preprocessing(tmp_path: Path) -> None:
    write_images(tmp_path, "a.png", "b.png")

    def digest(task: Task = TASK, selection: str | None = None) -> str:
        return open_samples(tmp_path, (IMAGE,), task=task, selection=selection).digest

    base = digest()
    assert base == digest()
    assert base == digest(selection="2")
    changed = {
        digest(selection="1"),
        digest(Task("t", "0", Preprocess(size=(8, 8), scale=2.0))),
        digest(Task("t", "0", Preprocess(size=(8, 8), channels="BGR"))),
    }
    (tmp_path / "b.png").write_bytes((tmp_path / "a.png").read_bytes())
    changed.add(digest())
    assert len(changed | {base}) == 5


def test_the_digest_of_tensors_follows_content_and_selection(tmp_path: Path) -> None:
    path = tmp_path / "in.npz"
    np.savez(path, image=floats(3, 3, 8, 8))
    base = open_samples(path, (IMAGE,)).digest
    assert open_samples(path, (IMAGE,), selection="2").digest != base
    np.savez(path, image=floats(3, 3, 8, 8, seed=1))
    assert open_samples(path, (IMAGE,)).digest != base


def test_samples_with_nan_are_given_and_can_be_found(tmp_path: Path) -> None:
    images = floats(3, 3, 8, 8)
    images[1, 0, 0, 0] = np.nan
    np.savez(tmp_path / "in.npz", image=images, ids=ids(3, 4))
    samples = open_samples(tmp_path / "in.npz", BOTH)
    found = {s.name: bad for s in (samples[i] for i in range(3)) if (bad := non_finite_inputs(s))}
    assert found == {"s001": ("image",)}
    notice = non_finite_notice(found, code="nan_in_inputs", where="in.npz")
    assert notice.code == "nan_in_inputs"
    assert "s001" in notice.message
    assert "NaN" in notice.message
