"""What a fault is: a function that spoils a candidate and says what the right answer would be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import onnx
from numpy.random import Generator

from tests.faults import architectures
from tests.faults.network import Feeds, Network
from tests.faults.quantization import Style, any_style, plain_style, quantize
from tests.faults.scoring import Scorer
from tests.faults.surgery import UnsuitableError, copy_of, is_stored

StyleOf = Callable[[Generator, Network], Style]


@dataclass(frozen=True)
class Truth:
    """The right answer.

    Attributes:
        cause: The label of the kind.
        accepted: All labels that count as right, ``cause`` among them.
        guilty: Sets of reference operators; naming exactly one of them (and at most tolerated ones besides)
            is right. Empty where no layer is to blame.
        tolerated: Operators that may be named besides, since they take part in it.
        verdicts: Verdicts that fit.
        may_be_notice: A warning or a remark with the cause is an answer, since the candidate is in order.
    """

    cause: str
    accepted: tuple[str, ...]
    guilty: tuple[frozenset[str], ...] = ()
    tolerated: frozenset[str] = frozenset()
    verdicts: tuple[str, ...] = ("faulty_layers",)
    may_be_notice: bool = False


@dataclass
class Bench:
    """A network on the bench: what a fault may look at and change.

    Attributes:
        random: Draws places and amounts.
        network: The reference and its data; never changed.
        style: How it is quantized.
        source: The float network that is quantized, BatchNormalizations folded.
        candidate: Its quantized form.
        score: Scores a candidate.
        taken: Operators that another fault spoiled already.
        candidate_feeds: What the candidate is fed, where that differs.
        calibration: Given to the diagnosis where a fault lies in it.
        cure: For networks that no quantizer of this style gets right: the stores that have to stay float.
        is_left_to_the_tool: No candidate is given: the tool quantizes the reference itself from the
            calibration set; the bench's candidate shows what comes of it.
        runs_plain: Score it with onnxruntime's own kernels for this processor.
        notes: What was done, for people.
    """

    random: Generator
    network: Network
    style: Style
    source: onnx.ModelProto
    candidate: onnx.ModelProto
    score: Scorer
    taken: frozenset[str] = frozenset()
    candidate_feeds: tuple[Feeds, ...] | None = None
    calibration: tuple[Feeds, ...] | None = None
    cure: tuple[str, ...] = ()
    is_left_to_the_tool: bool = False
    runs_plain: bool = False
    notes: list[str] = field(default_factory=list)

    def requantize(self, calibration: Sequence[Feeds] | None = None) -> None:
        """Quantize ``source`` anew, after it was changed."""
        self.candidate = quantize(self.source, calibration or self.network.calibration, self.style)

    def nodes(self, *op_types: str) -> list[onnx.NodeProto]:
        """Return nodes of ``source`` that no other fault has, of these types or of all."""
        return [
            node
            for node in self.source.graph.node
            if node.name not in self.taken and (not op_types or node.op_type in op_types)
        ]

    def pick(self, choices: Sequence[onnx.NodeProto]) -> onnx.NodeProto:
        """Draw one node.

        Raises:
            UnsuitableError: There is none.
        """
        if not choices:
            raise UnsuitableError("nothing to choose from")
        return choices[int(self.random.integers(len(choices)))]

    def weighted(self, *op_types: str) -> list[onnx.NodeProto]:
        """Return nodes whose constant weight the candidate stores in integers."""
        wanted = op_types or ("Conv", "ConvTranspose", "Gemm", "MatMul")
        stored = {t.name for t in self.candidate.graph.initializer}
        return [n for n in self.nodes(*wanted) if f"{n.input[1]}_quantized" in stored]

    def stored(self, *op_types: str, outputs: bool = True) -> list[onnx.NodeProto]:
        """Return nodes whose first output the candidate stores under a scale of its own."""
        leaving = {o.name for o in self.source.graph.output}
        return [
            n
            for n in self.nodes(*op_types)
            if is_stored(self.candidate, n.output[0]) and (outputs or n.output[0] not in leaving)
        ]

    def note(self, text: str) -> None:
        """Remember what was done."""
        self.notes.append(text)


@dataclass(frozen=True)
class Fault:
    """One way to go wrong.

    Attributes:
        name: Name of the way; several may share a cause.
        cause: The label it should get.
        plant: Spoils the candidate on the bench and returns the right answer.
        network: Draws a network that can have it.
        style: Draws a style in which it can be.
        is_native: The network itself defies an honest quantizer, so that there is no healthy candidate to
            begin with; the bench's ``cure`` shows that all else is fine.
        misses_samples: Calibration is to lack what the evaluation set has; otherwise native networks are
            calibrated on both, so that nothing is clipped besides.
        is_local: It spoils one layer of a finished candidate, and may be planted together with another.
        least_gain_db: What repairing it gives at least; where 0, the score must be that of a broken network.
        places: How often it is tried on one network before another is drawn.
    """

    name: str
    cause: str
    plant: Callable[[Bench], Truth]
    network: Callable[[Generator], Network]
    style: StyleOf
    is_native: bool = False
    misses_samples: bool = False
    is_local: bool = False
    least_gain_db: float = 0.0
    places: int = 6


FAULTS: dict[str, Fault] = {}


def style_of(*, qdq: bool = False, plain: bool = False, per_channel: bool | None = None) -> StyleOf:
    """Return a drawer of styles: all, QDQ ones, or the most common ones."""

    def draw(random: Generator, network: Network) -> Style:
        opset = network.model.opset_import[0].version
        if plain:
            return plain_style(random, opset=opset, per_channel=per_channel)
        return any_style(random, opset=opset, qdq=qdq)

    return draw


def fault(
    cause: str,
    *,
    network: Callable[[Generator], Network] | None = None,
    style: StyleOf | None = None,
    is_native: bool = False,
    misses_samples: bool = False,
    is_local: bool = False,
    least_gain_db: float = 0.0,
    places: int = 6,
) -> Callable[[Callable[[Bench], Truth]], Callable[[Bench], Truth]]:
    """Register a function as a way to go wrong, under its own name."""

    def register(plant: Callable[[Bench], Truth]) -> Callable[[Bench], Truth]:
        name = plant.__name__
        if name in FAULTS:
            raise ValueError(f"two faults are called {name}")
        FAULTS[name] = Fault(
            name,
            cause,
            plant,
            network or architectures.any_of(*architectures.ALL),
            style or style_of(),
            is_native,
            misses_samples,
            is_local,
            least_gain_db,
            places,
        )
        return plant

    return register


def blame(cause: str, *nodes: str, accept: Sequence[str] = (), tolerate: Sequence[str] = ()) -> Truth:
    """Return the answer that names these operators together."""
    return Truth(cause, tuple(dict.fromkeys((cause, *accept))), (frozenset(nodes),), frozenset(tolerate))


def snapshot(bench: Bench) -> Bench:
    """Return a bench with copies of what faults change."""
    return Bench(
        bench.random,
        bench.network,
        bench.style,
        copy_of(bench.source),
        copy_of(bench.candidate),
        bench.score,
        bench.taken,
    )
