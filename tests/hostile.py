"""Files that hurt: each with what must happen. ``CASES`` is the list; a case makes its file in a folder.

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
from typing import Literal

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
    why: str = ""

    def __str__(self) -> str:
        return self.name


def _write(folder: Path, content: bytes | onnx.ModelProto) -> Path:
    path = folder / "hostile.onnx"
    path.write_bytes(content if isinstance(content, bytes) else content.SerializeToString())
    return path


def of_bytes(content: Callable[[], bytes | onnx.ModelProto]) -> Callable[[Path], Path]:
    return lambda folder: _write(folder, content())


# --- not a model --------------------------------------------------------------------------------------------


def truncated() -> bytes:
    whole = chain(20).SerializeToString()
    return whole[: len(whole) * 2 // 3]


def no_nodes() -> onnx.ModelProto:
    proto = of_nodes([helper.make_node("Relu", ["x"], ["y"])])
    del proto.graph.node[:]
    return proto


# --- valid protobuf, invalid graph --------------------------------------------------------------------------


def node_without_outputs() -> onnx.ModelProto:
    return of_nodes(
        [
            helper.make_node("Relu", ["x"], [], name="mute"),
            helper.make_node("Relu", ["x"], ["y"], name="loud"),
        ]
    )


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
    return of_nodes(
        [
            helper.make_node("Add", ["x", "b"], ["a"], name="first"),
            helper.make_node("Neg", ["a"], ["b"], name="second"),
            helper.make_node("Neg", ["a"], ["y"], name="third"),
        ]
    )


def unknown_operators() -> onnx.ModelProto:
    return of_nodes(
        [
            helper.make_node("Frobnicate", ["x"], ["a"], name="frob_1"),
            helper.make_node("Relu", ["a"], ["b"], name="relu"),
            helper.make_node("Frobnicate", ["b"], ["c"], name="frob_2"),
            helper.make_node("Twiddle", ["c"], ["y"], name="twid"),
        ]
    )


# --- external data ------------------------------------------------------------------------------------------


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


# --- valid ONNX that compilers dislike ----------------------------------------------------------------------


def division_by_zero() -> onnx.ModelProto:
    """SIGFPE in the builder while it folds constants; the ONNX checker sees nothing wrong."""
    return of_nodes(
        [
            helper.make_node("Div", ["seven", "zero"], ["q"], name="div"),
            helper.make_node("Cast", ["q"], ["c"], name="cast", to=TensorProto.FLOAT),
            helper.make_node("Add", ["x", "c"], ["y"], name="add"),
        ],
        weights=[
            numpy_helper.from_array(np.array([7], np.int32), "seven"),
            numpy_helper.from_array(np.array([0], np.int32), "zero"),
        ],
    )


def not_utf8() -> bytes:
    """A node name that is not UTF-8: the vendor's binding raises UnicodeDecodeError on it."""
    proto = of_nodes([helper.make_node("Relu", ["x"], ["y"], name="QQQQ")])
    return proto.SerializeToString().replace(b"QQQQ", b"\xff\xfeQ\x80")


def hostile_names() -> onnx.ModelProto:
    """Every hostile name at once, duplicates and empty ones included."""
    proto = chain(len(HOSTILE_NAMES), ops=("Relu", "Sigmoid", "Neg"))
    for node, name in zip(proto.graph.node, HOSTILE_NAMES, strict=True):
        node.name = name
    return proto


def unsupported_operators() -> onnx.ModelProto:
    """Operators of a vendor's domain: valid ONNX, unknown to every compiler here."""
    proto = of_nodes(
        [
            helper.make_node("Frobnicate", ["x"], ["a"], name="frob_1", domain="com.example"),
            helper.make_node("Relu", ["a"], ["b"], name="relu"),
            helper.make_node("Frobnicate", ["b"], ["c"], name="frob_2", domain="com.example"),
            helper.make_node("Twiddle", ["c"], ["y"], name="twid", domain="com.example"),
        ]
    )
    proto.opset_import.append(helper.make_opsetid("com.example", 1))
    return proto


CASES: tuple[Case, ...] = (
    Case("empty file", of_bytes(lambda: b""), "load", ModelError, ("empty", "Export the model again")),
    Case(
        "text",
        of_bytes(lambda: b"This is not a model.\n" * 20),
        "load",
        ModelError,
        ("420 bytes are not an ONNX model", "Export it again"),
        "the builder takes it for a network without layers",
    ),
    Case(
        "zeros",
        of_bytes(lambda: bytes(1000)),
        "load",
        ModelError,
        ("1000 bytes are not an ONNX model",),
        "the builder takes it for a network without layers",
    ),
    Case("truncated file", of_bytes(truncated), "load", ModelError, ("truncated", "download was complete")),
    Case("no nodes", of_bytes(no_nodes), "load", ModelError, ("has no nodes", "nothing to compile")),
    Case(
        "node without outputs",
        of_bytes(node_without_outputs),
        "load",
        ModelError,
        ("mute", "output size 0"),
        "SIGSEGV in the builder",
    ),
    Case(
        "function calling itself",
        of_bytes(function_calling_itself),
        "load",
        ModelError,
        ('call each other in a circle: "Again", "Again"', "without local functions"),
        "SIGSEGV in the builder, and in the checker of ONNX up to 1.21",
    ),
    Case(
        "functions upon functions",
        of_bytes(functions_upon_functions),
        "load",
        ModelError,
        ("its 1 nodes stand for 4.19e+06 calls", "at most 2,000,000", "without local functions"),
        "the checker infers the types of each call, for hours",
    ),
    Case("cycle", of_bytes(circular), "load", ModelError, ("in a circle", '"first"', '"second"')),
    Case(
        "unknown operators",
        of_bytes(unknown_operators),
        "load",
        ModelError,
        ('"Frobnicate" (node "frob_1", "frob_2")', '"Twiddle" (node "twid")'),
        "a checker that stops at the first makes the user export once per operator",
    ),
    Case(
        "external data missing",
        functools.partial(external, location="gone.bin"),
        "load",
        ModelError,
        ('"gone.bin" is missing', 'beside "hostile.onnx"'),
    ),
    Case(
        "external data truncated",
        functools.partial(external, size=8),
        "load",
        ModelError,
        ('tensor "w"', '"weights.bin", which has 8 bytes', "Copy the complete file"),
        "onnx reads what there is and says nothing",
    ),
    Case(
        "external data past its end",
        functools.partial(external, offset="4096"),
        "load",
        ModelError,
        ("bytes 4096 to 4112", "which has 16 bytes"),
    ),
    Case(
        "external data with a wrong length",
        functools.partial(external, length="8"),
        "load",
        ModelError,
        ("takes 16 bytes", "declares 8 bytes"),
    ),
    Case(
        "external data at a negative offset",
        functools.partial(external, offset="-4"),
        "load",
        ModelError,
        ("at offset -4",),
    ),
    Case(
        "external data at no offset",
        functools.partial(external, offset="first"),
        "load",
        ModelError,
        ("unusable type, offset or length",),
    ),
    Case(
        "external data of no name",
        functools.partial(external, location=""),
        "load",
        ModelError,
        ("names no file",),
    ),
    Case(
        "external data is the folder",
        functools.partial(external, location="."),
        "load",
        ModelError,
        ('"." is missing',),
    ),
    Case(
        "external data escaping",
        escaping,
        "load",
        ModelError,
        ('"../weights.bin"', "outside the model's folder"),
    ),
    Case("external data absolute", absolute, "load", ModelError, ("outside the model's folder",)),
    Case("external data linked", linked, "load", ModelError, ('"link.bin"', "outside the model's folder")),
    Case(
        "external data is a device",
        functools.partial(external, location="/dev/zero"),
        "load",
        ModelError,
        ('"/dev/zero"', "outside the model's folder"),
    ),
    Case(
        "constant division by zero",
        of_bytes(division_by_zero),
        "build",
        BuildError,
        ("SIGFPE",),
        "SIGFPE in the builder",
    ),
    Case(
        "unsupported operators",
        of_bytes(unsupported_operators),
        "build",
        BuildError,
        ("Frobnicate", "frob_1", "frob_2", "Twiddle", "twid"),
        "all are listed, with the names of the nodes",
    ),
    Case(
        "3,000 pointwise nodes",
        of_bytes(lambda: chain(3000)),
        "build",
        None,
        (),
        "the builder recurses: without a large stack it ends in SIGSEGV",
    ),
    Case(
        "name that is not UTF-8",
        of_bytes(not_utf8),
        "build",
        None,
        (),
        "UnicodeDecodeError in the vendor's binding",
    ),
    Case(
        "hostile names", of_bytes(hostile_names), "build", None, (), "names that break the listing's format"
    ),
)

#: Refused by ``load``.
UNLOADABLE = tuple(c for c in CASES if c.stage == "load")
#: Valid ONNX; what a TensorRT build makes of it is in ``error`` and ``words``.
BUILDABLE = tuple(c for c in CASES if c.stage == "build")
