"""Make a pair harder to recognise without changing a value: other names, duplicated DQ, reordered outputs."""

from __future__ import annotations

from dataclasses import dataclass

import onnx
from numpy.random import Generator

from tests.faults.surgery import DEQUANTIZE, copy_of


@dataclass(frozen=True)
class Disguise:
    """What is done to the files.

    Attributes:
        rename: Give every node and inner tensor of the candidate a name that says nothing.
        strip_candidate: Take the node names of the candidate away.
        strip_reference: Take the node names of the reference away.
        duplicate: Give each reader a DequantizeLinear of its own.
        reorder: Hand the candidate's outputs out in reverse.
        external: Keep the weights of both in files of their own.
    """

    rename: bool = False
    strip_candidate: bool = False
    strip_reference: bool = False
    duplicate: bool = False
    reorder: bool = False
    external: bool = False

    def __str__(self) -> str:
        chosen = [name for name in self.__dataclass_fields__ if getattr(self, name)]
        return "names kept" if not chosen else ", ".join(chosen)


def any_disguise(random: Generator) -> Disguise:
    """Draw a disguise; most pairs get none."""
    if random.uniform() < 0.5:
        return Disguise()
    return Disguise(
        rename=random.uniform() < 0.3,
        strip_candidate=random.uniform() < 0.3,
        strip_reference=random.uniform() < 0.3,
        duplicate=random.uniform() < 0.4,
        reorder=random.uniform() < 0.4,
        external=random.uniform() < 0.15,
    )


def disguised(
    reference: onnx.ModelProto, candidate: onnx.ModelProto, disguise: Disguise, random: Generator
) -> tuple[onnx.ModelProto, onnx.ModelProto, dict[str, str]]:
    """Return both sides in disguise, and what reference nodes are called now where that changed."""
    reference, candidate = copy_of(reference), copy_of(candidate)
    new_names: dict[str, str] = {}
    if disguise.strip_reference:
        for node in reference.graph.node:
            new_names[node.name] = f"{node.op_type}:{node.output[0]}"
            node.name = ""
    if disguise.duplicate:
        _duplicate_dequantizers(candidate)
    if disguise.rename:
        _rename(candidate, random)
    if disguise.strip_candidate:
        for node in candidate.graph.node:
            node.name = ""
    if disguise.reorder and len(candidate.graph.output) > 1:
        outputs = list(candidate.graph.output)[::-1]
        del candidate.graph.output[:]
        candidate.graph.output.extend(outputs)
    return reference, candidate, new_names


def _duplicate_dequantizers(model: onnx.ModelProto) -> None:
    result: list[onnx.NodeProto] = []
    copies: dict[str, onnx.NodeProto] = {}
    leaving = {o.name for o in model.graph.output}
    for node in model.graph.node:
        is_activation = node.op_type == DEQUANTIZE and any(node.input[0] in n.output for n in result)
        if is_activation and node.output[0] not in leaving:
            copies[node.output[0]] = node
            continue
        for i, name in enumerate(node.input):
            if name in copies:
                count = sum(
                    1 for n in result if n.op_type == DEQUANTIZE and n.input[0] == copies[name].input[0]
                )
                twin = onnx.NodeProto()
                twin.CopyFrom(copies[name])
                twin.name = f"{twin.name}/duplicated_{count}"
                twin.output[0] = f"{name}/duplicated_{count}"
                result.append(twin)
                node.input[i] = twin.output[0]
        result.append(node)
    kept = [copy_node(node) for node in result]
    del model.graph.node[:]
    model.graph.node.extend(kept)


def copy_node(node: onnx.NodeProto) -> onnx.NodeProto:
    """Return a copy of a node."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    return copy


def _rename(model: onnx.ModelProto, random: Generator) -> None:
    fixed = {v.name for v in (*model.graph.input, *model.graph.output)} | {""}
    names: dict[str, str] = {}

    def new(name: str) -> str:
        if name in fixed:
            return name
        return names.setdefault(name, f"v{random.bytes(6).hex()}")

    for node in model.graph.node:
        node.input[:] = [new(name) for name in node.input]
        node.output[:] = [new(name) for name in node.output]
        node.name = f"n{random.bytes(6).hex()}"
    for tensor in model.graph.initializer:
        tensor.name = new(tensor.name)
    del model.graph.value_info[:]
    model.doc_string = ""
