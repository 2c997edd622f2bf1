"""How exporters name things: a network is built once per style, so that no name means anything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from numpy.random import Generator

_WORDS = "stem body stage block unit cell trunk layer features encoder mid neck".split()
_TF_TYPES = {"Conv": "Conv2D", "Gemm": "MatMul", "Add": "add", "Clip": "Relu6", "GlobalAveragePool": "Mean"}


@dataclass
class Namer:
    """Hands out unique names in one exporter's style.

    Attributes:
        style: "torch", "tensorflow", "numbered", "plain" or "hashed".
        random: Where words and hashes come from.
    """

    style: str
    random: Generator
    _taken: set[str] = field(default_factory=set)
    _count: int = 0
    _words: dict[str, str] = field(default_factory=dict)

    def node(self, op_type: str, place: str) -> str:
        """Return a node's name; ``place`` says where in the network it is ("block1.conv")."""
        return self._unique(_NODES[self.style](self, op_type, self._translate(place)))

    def value(self, op_type: str, node: str) -> str:
        """Return the name of a node's output."""
        return self._unique(_VALUES[self.style](self, op_type, node))

    def constant(self, place: str, role: str) -> str:
        """Return the name of a weight."""
        return self._unique(_CONSTANTS[self.style](self, self._translate(place), role))

    def number(self) -> int:
        """Return the next number, with gaps as exporters leave them."""
        self._count += int(self.random.integers(1, 4))
        return self._count

    def digest(self) -> str:
        """Return a name that says nothing."""
        return self.random.bytes(5).hex()

    def _translate(self, place: str) -> str:
        """Replace the first word of a place by one of this network's own."""
        first, dot, rest = place.partition(".")
        if first not in self._words:
            word = f"{_WORDS[int(self.random.integers(len(_WORDS)))]}{len(self._words)}"
            self._words[first] = word
        return self._words[first] + dot + rest

    def _unique(self, name: str) -> str:
        candidate, count = name, 1
        while candidate in self._taken:
            candidate, count = f"{name}_{count}", count + 1
        self._taken.add(candidate)
        return candidate


def _torch_node(_namer: Namer, op_type: str, place: str) -> str:
    return "/" + place.replace(".", "/") + "/" + op_type


def _tensorflow_node(_namer: Namer, op_type: str, place: str) -> str:
    return "model/" + place.replace(".", "/") + "/" + _TF_TYPES.get(op_type, op_type)


_NODES: dict[str, Callable[[Namer, str, str], str]] = {
    "torch": _torch_node,
    "tensorflow": _tensorflow_node,
    "numbered": lambda namer, op_type, _place: f"{op_type}_{namer.number()}",
    "plain": lambda _namer, op_type, place: f"{place.replace('.', '_')}_{op_type.lower()}",
    "hashed": lambda namer, _op_type, _place: f"n{namer.digest()}",
}
_VALUES: dict[str, Callable[[Namer, str, str], str]] = {
    "torch": lambda _namer, _op_type, node: f"{node}_output_0",
    "tensorflow": lambda _namer, _op_type, node: f"{node}:0",
    "numbered": lambda namer, _op_type, _node: str(namer.number() + 100),
    "plain": lambda _namer, _op_type, node: f"{node}_out",
    "hashed": lambda namer, _op_type, _node: f"t{namer.digest()}",
}
_CONSTANTS: dict[str, Callable[[Namer, str, str], str]] = {
    "torch": lambda _namer, place, role: f"{place}.{role}",
    "tensorflow": lambda _namer, place, role: f"model/{place.replace('.', '/')}/{role}/ReadVariableOp",
    "numbered": lambda namer, _place, role: f"onnx::{role}_{namer.number() + 300}",
    "plain": lambda _namer, place, role: f"{place.replace('.', '_')}_{role}",
    "hashed": lambda namer, _place, _role: f"c{namer.digest()}",
}
STYLES = tuple(_NODES)
