from __future__ import annotations

import numpy as np
import onnx_ir as ir

from analyzers.folded_constants import fold_layouts
from analyzers.graph import constant_array

NET = """<ir_version: 8, opset_import: ["" : 17]>
net (float[1,2,3] x) => (float[1,2,3] out, float[3,2] kept)
<float[6] w = {1, 2, 3, 4, 5, 6}, int64[2] shape = {2, -1}, int64[1] zero = {0}>
{
    m = Reshape(w, shape)
    t = Unsqueeze(m, zero)
    y = Add(x, t)
    out = Relu(y)
    kept = Transpose(m)
}
"""


def test_constants_that_are_only_re_laid_out_become_constants() -> None:
    model = ir.from_onnx_text(NET)
    assert fold_layouts(model.graph)
    assert [n.op_type for n in model.graph] == ["Add", "Relu", "Transpose"]
    folded = constant_array(model.graph[0].inputs[1])
    assert folded is not None
    np.testing.assert_array_equal(folded, np.arange(1, 7, dtype=np.float32).reshape(1, 2, 3))


def test_what_leaves_the_graph_or_is_computed_stays() -> None:
    model = ir.from_onnx_text(NET)
    fold_layouts(model.graph)
    assert not fold_layouts(model.graph)
    assert model.graph.outputs[1].producer() is not None
