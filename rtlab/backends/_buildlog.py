"""The builder's verbose log: the listing of layers, the tensors at its edges, memory totals, parser errors.

Only what the builder prints is read. Values in a listing line are not escaped, so a line is taken apart at its
fixed keys, the last of which is ``Metadata``.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

from rtlab.core.engine import Layer, Tensor
from rtlab.errors import ReadError

#: TensorRT's type names in rtlab's words.
DTYPES = {
    "Float": "fp32",
    "Half": "fp16",
    "BFloat16": "bf16",
    "Int8": "int8",
    "Int32": "int32",
    "Int64": "int64",
    "UInt8": "uint8",
    "Bool": "bool",
    "FP8": "fp8",
    "Int4": "int4",
    "FP4": "fp4",
    "FP4E2M1": "fp4",
}

# Values may hold any character, so the first field is lazy and the last greedy.
_LAYER = re.compile(
    r"^Name: (?P<name>.*?), LayerType: (?P<kind>[\w:]+), Inputs: \[(?P<inputs>.*?)\], "
    r"(?:Constants: \[(?P<constants>.*?)\], )?Outputs: \[(?P<outputs>.*?)\], TacticName: (?P<tactic>.*?)"
    r"(?:, StreamId: (?P<stream>-?\d+))?(?:, EventId: (?P<event>-?\d+))?(?:, JumpTarget: (?P<jump>\S*))?"
    r", Metadata:(?P<metadata>.*)$"
)
_TENSOR = re.compile(
    r"\{ Name: (?P<name>.*?), Dimensions: \[(?P<shape>[-\d, ]*)\]"
    r"(?:, Strides: \[(?P<strides>[-\d, ]*)\])?(?:, StrideOrder: \[[-\d, ]*\])?"
    r", Datatype: (?P<dtype>\w+)(?:, Format: (?P<format>[^}]*?))?\s*\}"
)
_IO = re.compile(
    r"^ ?Name: (?P<name>.*), IOMode: (?P<mode>Input|Output), DataType: (?P<dtype>\w+), "
    r"Dimensions: \[(?P<shape>[-\d, ]*)\]"
)
_LABEL = re.compile(r"\[ONNX Layer: ([^\]]*)\]")
_BODIES = {"then_branch", "else_branch", "body"}
_TOTALS = {
    "activation": re.compile(r"Total Activation Memory: (\d+)"),
    "weights": re.compile(r"Total Weights Memory: (\d+)"),
    "scratch": re.compile(r"Max Scratch Memory: (\d+)"),
    "host": re.compile(r"Total Host Persistent Memory: (\d+)"),
    "device": re.compile(r"Total Device Persistent Memory: (\d+)"),
}
_PROFILE = re.compile(r" \[profile \d+\]$")


@dataclasses.dataclass(frozen=True)
class Listing:
    """What the log tells of one engine. ``unread`` holds listing lines that no rule understood."""

    layers: tuple[Layer, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    totals: Mapping[str, int]
    unread: tuple[str, ...]


def parse(log: str, labels: Mapping[str, str] | None = None) -> Listing:
    """Read the last layer listing of a verbose log.

    Args:
        log: Messages of the logger, each ending with a newline.
        labels: Translates names that the builder was given back into node ids.

    Raises:
        ReadError: there is no listing, which means that verbosity was not VERBOSE and DETAILED.
    """
    start = log.rfind("Layers:\n")
    if start < 0:
        raise ReadError(
            "Cannot read the build log: it has no layer listing. Build with a logger that receives VERBOSE messages "
            "and with profiling verbosity DETAILED."
        )
    body, _, rest = log[start + len("Layers:\n") :].partition("\nI/O Tensors:")
    layers: list[Layer] = []
    unread: list[str] = []
    for line in body.split("\n"):
        if not line.strip():
            continue
        found = _LAYER.match(line)
        if found is None:
            unread.append(line)
            continue
        layers.append(_layer(found, len(layers), labels or {}))
    inputs: list[Tensor] = []
    outputs: list[Tensor] = []
    for line in rest.partition("\nEngine Metadata:")[0].split("\n"):
        if (found := _IO.match(line)) and not _PROFILE.search(found["name"]):
            tensor = Tensor(found["name"], DTYPES.get(found["dtype"], found["dtype"]), _ints(found["shape"]))
            (inputs if found["mode"] == "Input" else outputs).append(tensor)
    totals = {k: int(m[-1]) for k, rule in _TOTALS.items() if (m := rule.findall(log))}
    return Listing(tuple(layers), tuple(inputs), tuple(outputs), totals, tuple(unread))


def _layer(found: re.Match[str], index: int, labels: Mapping[str, str]) -> Layer:
    name = found["name"]
    return Layer(
        id=f"{index}:{name}",
        name=name,
        kind=found["kind"],
        index=index,
        inputs=_tensors(found["inputs"]),
        outputs=_tensors(found["outputs"]),
        constants=_tensors(found["constants"] or ""),
        tactic=found["tactic"],
        stream=int(found["stream"] or 0),
        event=None if found["event"] is None else int(found["event"]),
        origins=origins(found["metadata"], labels),
        attributes={"jump": found["jump"]} if found["jump"] else {},
    )


def origins(metadata: str, labels: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Node ids in a list of labels, each once, in order.

    A label inside a body reads ``inner | branch (graph) | owner (If)``: the inner node and its owners all belong
    to the layer.
    """
    ids: dict[str, None] = {}
    for label in _LABEL.findall(metadata):
        parts = label.split(" | ")
        owners = (p.rpartition(" (") for p in parts[1:])
        # A branch or body is a graph, not a node, though a node may bear its name.
        nodes = (name for name, _, kind in owners if kind.rstrip(")") not in _BODIES)
        for part in (parts[0], *nodes):
            if part:
                ids[(labels or {}).get(part, part)] = None
    return tuple(ids)


def _tensors(text: str) -> tuple[Tensor, ...]:
    return tuple(
        Tensor(
            name=m["name"],
            dtype=DTYPES.get(m["dtype"], m["dtype"].lower()),
            shape=_ints(m["shape"]),
            format=(m["format"] or "").strip(),
            strides=_ints(m["strides"]) if m["strides"] is not None else None,
        )
        for m in _TENSOR.finditer(text)
    )


def _ints(text: str) -> tuple[int, ...]:
    return tuple(int(t) for t in text.split(",") if t.strip())
