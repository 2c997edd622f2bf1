"""All that detectors may look at: what was measured, and what the two files say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from analyzers.contracts import SampleSet
from analyzers.layer_rows import Measured
from analyzers.measure import PairMoments
from analyzers.moments import Moments
from analyzers.project import Pair
from analyzers.records import Array, Comparison, Layer, LayerRecord, Operator, Quantization


@dataclass(frozen=True, slots=True, eq=False)
class ConstantPair:
    """A constant of an operator that exists on both sides.

    Attributes:
        layer: Reference layer of the operator.
        node: Reference operator.
        op_type: Its type.
        role: "weight", "bias", or "other" for constants that steer the operator.
        value: Name of the candidate value that the operator reads (dequantized where it is quantized).
        reference: float64, what an exact conversion would hold here, in the candidate's layout: with
            BatchNormalization folded where the candidate folded it, transposed where it is transposed.
        candidate: float64, what the candidate computes with; the same shape.
        integers: The stored integers; None where it is float.
        quantization: How they are stored; None where it is float.
        unfolded: ``reference`` without the BatchNormalization; None where none was folded.
        channel_axis: Axis of the output channels; None where there is none.
        input_scale: For biases: the scale of the activation that the operator reads; None otherwise.
        weight_scale: For biases: the scales of the operator's weight; None otherwise.
        shared_by: Reference operators whose twins read the same initializer, this one included.
    """

    layer: str
    node: str
    op_type: str
    role: str
    value: str
    reference: Array
    candidate: Array
    integers: Array | None
    quantization: Quantization | None
    unfolded: Array | None
    channel_axis: int | None
    input_scale: Array | None = None
    weight_scale: Array | None = None
    shared_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Reader:
    """Who reads a stored tensor back, and with which parameters.

    Attributes:
        layer: Reference layer that reads it; "" where unknown or where it leaves the graph.
        node: Reference operator that reads it; "" likewise.
        quantization: Parameters of the DequantizeLinear.
        written: Parameters of the QuantizeLinear that wrote the integers which it reads: those of the store,
            or of a second quantizer on this edge.
    """

    layer: str
    node: str
    quantization: Quantization
    written: Quantization


@dataclass(frozen=True, slots=True, eq=False)
class Store:
    """How the candidate stores a tensor.

    Attributes:
        tensor: Reference tensor.
        layer: Layer that makes it; ``<input>`` for graph inputs.
        node: Operator that makes it.
        quantization: Parameters of the QuantizeLinear.
        readers: Who reads it.
    """

    tensor: str
    layer: str
    node: str
    quantization: Quantization
    readers: tuple[Reader, ...]


@dataclass(frozen=True, slots=True)
class Tail:
    """How the magnitudes of a reference tensor are spread, over the looked-at samples.

    Attributes:
        p50: Median of the magnitudes; p99, p999 and max likewise.
        under_half_step: Share of the nonzero values under half a step of the store; nan without one.
        zero: Share of values that are zero.
        levels_for_99: Integer levels that hold the middle 99 % of the values; nan without a store.
    """

    p50: float
    p99: float
    p999: float
    max: float
    under_half_step: float
    zero: float
    levels_for_99: float


@dataclass(frozen=True, slots=True, eq=False)
class Anatomy:
    """A layer's tensor, isolated (fed with the reference's values), in three stages.

    All moments are reference against stage, with channels; None where the stage cannot be cut out.

    Attributes:
        operator: The candidate's operators with the reference's constants, nothing stored.
        computed: The same with the candidate's own constants.
        stored: What the candidate stores: the isolated error.
        tail: How the reference's values are spread.
    """

    operator: PairMoments | None
    computed: PairMoments | None
    stored: PairMoments | None
    tail: Tail


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """The values behind an ``Anatomy``, of one sample, in the reference's layout, float32."""

    sample: str
    reference: Array
    operator: Array | None
    computed: Array | None
    stored: Array | None


@dataclass(frozen=True, slots=True, eq=False)
class Detour:
    """What a candidate operator reads instead of the twin of its reference input.

    Operators without a counterpart lie in between (a copy that aligns channels, a Pad).

    Attributes:
        node: Reference operator that reads the tensor.
        tensor: Reference tensor.
        found: Reference tensor against what is read, on the looked-at samples, without any quantizer.
    """

    node: str
    tensor: str
    found: PairMoments


@dataclass(frozen=True, eq=False)
class Evidence:
    """What detectors look at.

    Attributes:
        pair: Both graphs and what belongs to what.
        comparison: Rows per operator and output, over all samples.
        measured: Moments over all samples, by reference tensor.
        anatomy: Isolated stages on the looked-at samples, by reference tensor.
        constants: Constants on both sides.
        stores: Stored tensors, by reference tensor.
        calibration: The reference's moments over the calibration set, by tensor; empty if not given.
        output_sqnr_db: Lowest SQNR of the outputs and their parts on the looked-at samples.
        look: Returns the values of one tensor, sample by sample; each call runs the reference again.
        look_at_store: The same, only reference and store; most of these were kept.
        samples: The looked-at samples; None where there are none to run anything on.
        detours: What operators read through others that the reference does not have, by reference operator;
            only where the shape is the same.
        executions: Lowest output SQNR in dB of the candidate's own file by how it is run: "as-executed",
            "literal", "plain"; empty where unknown.
    """

    pair: Pair
    comparison: Comparison
    measured: Mapping[str, Measured]
    anatomy: Mapping[str, Anatomy]
    constants: tuple[ConstantPair, ...]
    stores: Mapping[str, Store]
    calibration: Mapping[str, Moments]
    output_sqnr_db: float
    look: Callable[[str], tuple[Look, ...]]
    look_at_store: Callable[[str], tuple[Look, ...]]
    samples: SampleSet | None = None
    detours: Mapping[str, Detour] = field(default_factory=dict)
    executions: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def layers(self) -> dict[str, Layer]:
        """Layers by name, topological."""
        return {layer.name: layer for layer in self.pair.pairing.layers}

    @cached_property
    def operators(self) -> dict[str, Operator]:
        """Operators by name, topological."""
        return {operator.name: operator for operator in self.pair.pairing.operators}

    @cached_property
    def producers(self) -> dict[str, Operator]:
        """The operator that makes a reference tensor."""
        return {tensor: operator for operator in self.pair.pairing.operators for tensor in operator.outputs}

    @cached_property
    def rows(self) -> dict[str, LayerRecord]:
        """Rows of the comparison, by reference tensor."""
        return {row.reference_tensor: row for row in self.comparison.layers}
