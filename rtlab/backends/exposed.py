"""Any value of a model as one of its outputs, so that a session returns it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import onnx
import onnx_ir as ir

from rtlab.backends.heeding import amend
from rtlab.core.model import Model
from rtlab.errors import RunError

#: Bytes from which a weight lies outside the model that a session reads.
EXTERNAL = 1024


def names(data: bytes) -> tuple[str, ...]:
    """Values that the nodes of a serialized model write, those of bodies aside."""
    return tuple(v for n in onnx.load_from_string(data).graph.node for v in n.output if v)


def inside(data: bytes, names: Sequence[str]) -> bytes:
    """The model with the named values as additional graph outputs."""
    proto = onnx.load_from_string(data)
    have = {o.name for o in proto.graph.output}
    made = {o for n in proto.graph.node for o in n.output} | {i.name for i in proto.graph.input}
    made |= {i.name for i in proto.graph.initializer}
    for name in names:
        if name not in made:
            raise _unknown(name)
        if name not in have:
            have.add(name)
            proto.graph.output.add(name=name)
    return bytes(proto.SerializeToString())


def write(model: Model, names: Sequence[str], path: Path) -> None:
    """Write a model with the named values as outputs, and its weights in a file beside it.

    A session reads such weights without the copies that it makes of those inside a model.
    """
    made = {o for n in model.top for o in n.outputs} | set(model.inputs) | set(model.ir.graph.initializers)
    for name in names:
        if name not in made:
            raise _unknown(name)
    # The clone shares the tensors of the model, which stays as it is.
    copy = model.ir.clone()
    large = [
        v
        for v in copy.graph.initializers.values()
        if (t := v.const_value) is not None and t.nbytes >= EXTERNAL and t.dtype != ir.DataType.STRING
    ]
    outside = ir.external_data.convert_tensors_to_external(
        [v.const_value for v in large if v.const_value is not None], path.parent, "weights"
    )
    for value, tensor in zip(large, outside, strict=True):
        value.const_value = tensor
    proto = ir.to_proto(copy)
    amend(proto.graph)
    have = {o.name for o in proto.graph.output}
    proto.graph.output.extend(onnx.ValueInfoProto(name=n) for n in names if n not in have)
    path.write_bytes(proto.SerializeToString())


def _unknown(name: str) -> RunError:
    return RunError(f'Cannot read value "{name}": the model has no value of this name. See model.values.')
