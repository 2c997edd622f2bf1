from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from analyzers import opening
from analyzers.errors import InputError, PairingError
from analyzers.name_maps import read_name_map
from analyzers.project import open_models
from analyzers.records import Inputs
from analyzers.steps import finish
from tests.networks import build, quantized

TWINS = """
net (float[1,4,8,8] image) => (float[1,4,8,8] left, float[1,4,8,8] right)
{
    [a] a = Sigmoid(image)
    [b] b = Tanh(image)
    [l] left = Mul(a, image)
    [r] right = Mul(b, image)
}
"""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[1, 2]", "no JSON object"),
        ("{}", "no JSON object"),
        ('{"a": 1}', "no name"),
        ('{"a": "b", "a": "c"}', "mapped twice"),
        ("{", "Expecting"),
    ],
)
def test_a_map_that_is_no_map_is_refused(text: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "names.json"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_name_map(path)
    assert caught.value.code == "bad_name_map"
    assert why in caught.value.message


def test_an_absent_map_is_said_to_be_absent(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_name_map(tmp_path / "none.json")
    assert caught.value.code == "file_absent"


def test_a_map_pairs_what_it_names_and_what_follows(tmp_path: Path) -> None:
    reference, candidate = _with_exchanged_activations(tmp_path)
    names = tmp_path / "names.json"
    names.write_text('{"a": "p", "b": "q"}')
    inputs = Inputs(reference, candidate, name_map=names)
    pairs = {p.reference: p for p in finish(opening.open_pair(inputs)).pairing.pairs}
    assert (pairs["a"].evidence, pairs["a"].candidate) == ("map", "p_DequantizeLinear_Output")
    assert (pairs["b"].evidence, pairs["b"].candidate) == ("map", "q_DequantizeLinear_Output")
    assert pairs["left"].candidate == "u"


def test_a_map_is_part_of_what_identifies_a_pair(tmp_path: Path) -> None:
    reference, candidate = _with_exchanged_activations(tmp_path)
    plain = open_models(reference, candidate)
    assert open_models(reference, candidate, name_map={"a": "p"}).digest != plain.digest


@pytest.mark.parametrize("given", [{"a": "nowhere"}, {"nowhere": "p"}])
def test_a_map_of_unknown_names_is_refused(given: dict[str, str], tmp_path: Path) -> None:
    reference, candidate = _with_exchanged_activations(tmp_path)
    with pytest.raises(PairingError) as caught:
        open_models(reference, candidate, name_map=given)
    assert caught.value.code == "bad_name_map"
    assert "nowhere" in caught.value.message


def _with_exchanged_activations(folder: Path) -> tuple[Path, Path]:
    """Return a candidate in which both activations are others, so that nothing tells the branches apart."""
    reference, candidate = quantized(build(TWINS, {}), folder)
    model = onnx.load(candidate)
    new = {"a": "p", "b": "q", "left": "u", "right": "v"}
    for node in model.graph.node:
        node.op_type = "Softsign" if node.op_type in {"Sigmoid", "Tanh"} else node.op_type
        node.name = ""
        for names in (node.input, node.output):
            names[:] = [_renamed(name, new) for name in names]
    for value in model.graph.output:
        value.name = _renamed(value.name, new)
    for tensor in model.graph.initializer:
        tensor.name = _renamed(tensor.name, new)
    onnx.save(model, candidate)
    return reference, candidate


def _renamed(name: str, new: dict[str, str]) -> str:
    first, mark, rest = name.partition("_")
    return new.get(first, first) + mark + rest
