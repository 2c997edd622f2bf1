"""Nodes with bodies in a graph that is put together from two."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

from analyzers.comparison import compare
from analyzers.project import open_models
from analyzers.steps import finish
from tests.analyzers.sets import MemorySamples
from tests.analyzers.with_bodies import network


def test_a_body_may_use_names_that_the_other_side_uses_outside(tmp_path: Path) -> None:
    """Read back in the body, a weight has the name that the reference's weight has in the main graph."""
    reference, candidate = network("loop").write(tmp_path)
    model = onnx.load(candidate)
    outer = {t.name: t for t in model.graph.initializer}
    model.graph.initializer.remove(outer["w0"])
    (body,) = (a.g for n in model.graph.node if n.name == "recur" for a in n.attribute)
    for node in body.node:
        node.input[:] = ["w0" if name == "w0_DQ" else name for name in node.input]
        node.output[:] = ["w0" if name == "w0_DQ" else name for name in node.output]
    onnx.save(model, candidate)
    compared = finish(compare(open_models(reference, candidate), MemorySamples(network("loop").samples())))
    (row,) = (row for row in compared.layers if row.node == "recur")
    assert row.isolated is not None
    assert np.isfinite(row.isolated.sqnr_db)
