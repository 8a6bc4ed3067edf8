"""Files that hurt: each with what must happen. a case makes its file in a folder.

``load`` must refuse a case whose ``stage`` is "load", with ``error`` and all of ``words``. A case whose stage
is "build" is valid ONNX and loads; a TensorRT build of it must then raise ``error`` with ``words``, or
succeed where ``error`` is None, and in every case leave this process alive and the file unchanged.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from rtlab.errors import BuildError, ModelError, RtlabError
from strategies import HOSTILE_NAMES, chain, of_nodes


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    make: Callable[[Path], Path]
    stage: Literal["load", "build"]
    error: type[RtlabError] | None
    words: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name


def _write(folder: Path, content: bytes | onnx.ModelProto) -> Path:
    path = folder / "hostile.onnx"
    path.write_bytes(content if isinstance(content, bytes) else content.SerializeToString())
    return path


def of_bytes(content: Callable[[], bytes | onnx.ModelProto]) -> Callable[[Path], Path]:
    return lambda folder: _write(folder, content())


def truncated() -> bytes:
    whole = chain(20).SerializeToString()
    return whole[: len(whole) * 2 // 3]


def no_nodes() -> onnx.ModelProto:
    proto = of_nodes([helper.make_node("Relu", ["x"], ["y"])])
    del proto.graph.node[:]
    return proto


def node_without_outputs() -> onnx.ModelProto:
    return of_nodes([helper.make_node("Relu", ["x"], w, n) for w, n in (([], "mute"), (["y"], "loud"))])


def function_calling_itself() -> onnx.ModelProto:
    """SIGSEGV in the builder's parser: endless recursion."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    body = [helper.make_node("Again", ["a"], ["b"], domain="local")]
    proto = of_nodes([helper.make_node("Again", ["x"], ["y"], name="call", domain="local")])
    proto.functions.append(helper.make_function("local", "Again", ["a"], ["b"], body, opsets))
    proto.opset_import.append(helper.make_opsetid("local", 1))
    return proto


def functions_upon_functions(levels: int = 22, times: int = 2) -> onnx.ModelProto:
    """Each function calls the one before twice: a file of 1,900 bytes that stands for millions of calls."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    proto = of_nodes([helper.make_node(f"F{levels - 1}", ["x"], ["y"], name="call", domain="local")])
    for level in range(levels):
        names = ["a", *(f"t{i}" for i in range(times - 1)), "b"]
        op, domain = (f"F{level - 1}", "local") if level else ("Neg", "")
        body = [helper.make_node(op, [a], [b], domain=domain) for a, b in itertools.pairwise(names)]
        proto.functions.append(helper.make_function("local", f"F{level}", ["a"], ["b"], body, opsets))
    proto.opset_import.append(helper.make_opsetid("local", 1))
    return proto


def circular() -> onnx.ModelProto:
    first = helper.make_node("Add", ["x", "b"], ["a"], "first")
    return of_nodes(
        [first, *(helper.make_node("Neg", ["a"], [w], n) for w, n in (("b", "second"), ("y", "third")))]
    )


def unknown_operators(domain: str = "") -> onnx.ModelProto:
    """Operators that ONNX itself does not have, one of them twice."""
    rows = (("Frobnicate", "x", "a", "frob_1"), ("Relu", "a", "b", "relu"), ("Frobnicate", "b", "c", "frob_2"),
            ("Twiddle", "c", "y", "twid"))  # fmt: skip
    return of_nodes(
        [helper.make_node(op, [i], [o], n, domain="" if op == "Relu" else domain) for op, i, o, n in rows]
    )


def external(folder: Path, *, location: str = "weights.bin", size: int = 16, **entries: str) -> Path:
    """A model whose 16-byte weight ``w`` lies at ``location``; the file weights.bin has ``size`` bytes."""
    proto = of_nodes([helper.make_node("Add", ["x", "w"], ["y"], name="add")])
    tensor = proto.graph.initializer.add(name="w", data_type=TensorProto.FLOAT, dims=[1, 4])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=value)
    (folder / "weights.bin").write_bytes(np.arange(64, dtype=np.float32).tobytes()[:size])
    return _write(folder, proto)


def escaping(folder: Path) -> Path:
    inner = folder / "inner"
    inner.mkdir()
    (folder / "weights.bin").write_bytes(bytes(16))
    return external(inner, location="../weights.bin")


def absolute(folder: Path) -> Path:
    (folder / "weights.bin").write_bytes(bytes(16))
    return external(folder, location=str((folder / "weights.bin").absolute()))


def linked(folder: Path) -> Path:
    inner = folder / "inner"
    inner.mkdir()
    (folder / "secret.bin").write_bytes(bytes(16))
    (inner / "link.bin").symlink_to(folder / "secret.bin")
    return external(inner, location="link.bin")


def division_by_zero() -> onnx.ModelProto:
    """SIGFPE in the builder while it folds constants; the ONNX checker sees nothing wrong."""
    nodes = [
        helper.make_node("Div", ["seven", "zero"], ["q"], name="div"),
        helper.make_node("Cast", ["q"], ["c"], name="cast", to=TensorProto.FLOAT),
        helper.make_node("Add", ["x", "c"], ["y"], name="add"),
    ]
    numbers = {"seven": 7, "zero": 0}
    return of_nodes(
        nodes, weights=[numpy_helper.from_array(np.array([v], np.int32), k) for k, v in numbers.items()]
    )


def not_utf8() -> bytes:
    """A node name that is not UTF-8: the vendor's binding raises UnicodeDecodeError on it."""
    proto = of_nodes([helper.make_node("Relu", ["x"], ["y"], name="QQQQ")])
    return proto.SerializeToString().replace(b"QQQQ", b"\xff\xfeQ\x80")


def hostile_names() -> onnx.ModelProto:
    proto = chain(len(HOSTILE_NAMES), ops=("Relu", "Sigmoid", "Neg"))
    for node, name in zip(proto.graph.node, HOSTILE_NAMES, strict=True):
        node.name = name
    return proto


def unsupported_operators() -> onnx.ModelProto:
    proto = unknown_operators("com.example")
    proto.opset_import.append(helper.make_opsetid("com.example", 1))
    return proto


def _external(**entries: Any) -> Callable[[Path], Path]:
    return functools.partial(external, **entries)


def _load(name: str, make: Callable[[Path], Path], *words: str) -> Case:
    return Case(name, make, "load", ModelError, words)


_OUTSIDE = "outside the model's folder"
UNLOADABLE = (
    _load("empty file", of_bytes(lambda: b""), "empty"),
    # The builder takes these two for networks without layers.
    _load("text", of_bytes(lambda: b"This is not a model.\n" * 20), "420 bytes are not an ONNX model"),
    _load("zeros", of_bytes(lambda: bytes(1000)), "1000 bytes are not an ONNX model"),
    _load("truncated file", of_bytes(truncated), "truncated", "download was complete"),
    _load("no nodes", of_bytes(no_nodes), "has no nodes"),
    _load("node without outputs", of_bytes(node_without_outputs), "mute", "output size 0"),
    # SIGSEGV in the checker of ONNX up to 1.21 too.
    _load("function calling itself", of_bytes(function_calling_itself), "in a circle", '"Again", "Again"'),
    # The checker infers the types of each call, for hours.
    _load("functions upon functions", of_bytes(functions_upon_functions), "4.19e+06 calls", "at most 2,000,000"),
    _load("cycle", of_bytes(circular), "in a circle", '"first"', '"second"'),
    # A checker that stops at the first makes the user export once per operator.
    _load("unknown operators", of_bytes(unknown_operators), '"Frobnicate" (node "frob_1", "frob_2")', '"Twiddle"'),
    _load("external data missing", _external(location="gone.bin"), '"gone.bin" is missing', '"hostile.onnx"'),
    # onnx reads what there is and says nothing.
    _load("external data truncated", _external(size=8), 'tensor "w"', '"weights.bin", which has 8 bytes'),
    _load("external data past its end", _external(offset="4096"), "bytes 4096 to 4112", "which has 16 bytes"),
    _load("external data with a wrong length", _external(length="8"), "takes 16 bytes", "declares 8 bytes"),
    _load("external data at a negative offset", _external(offset="-4"), "at offset -4"),
    _load("external data at no offset", _external(offset="first"), "bytes at offset first"),
    _load("external data of no name", _external(location=""), "names no file"),
    _load("external data is the folder", _external(location="."), '"." is missing'),
    _load("external data escaping", escaping, '"../weights.bin"', _OUTSIDE),
    _load("external data absolute", absolute, _OUTSIDE),
    _load("external data linked", linked, '"link.bin"', _OUTSIDE),
    _load("external data is a device", _external(location="/dev/zero"), '"/dev/zero"', _OUTSIDE),
)  # fmt: skip
_UNSUPPORTED = ("Frobnicate", "frob_1", "frob_2", "Twiddle", "twid")
#: Valid ONNX; what a TensorRT build makes of it is in ``error`` and ``words``.
BUILDABLE = (
    Case("constant division by zero", of_bytes(division_by_zero), "build", BuildError, ("SIGFPE",)),
    Case("unsupported operators", of_bytes(unsupported_operators), "build", BuildError, _UNSUPPORTED),
    # The builder recurses: without a large stack it ends in SIGSEGV.
    Case("3,000 pointwise nodes", of_bytes(lambda: chain(3000)), "build", None),
    # UnicodeDecodeError in the vendor's binding.
    Case("name that is not UTF-8", of_bytes(not_utf8), "build", None),
    # Names that break the listing's format.
    Case("hostile names", of_bytes(hostile_names), "build", None),
)
