"""What a builder's verbose log lists: layers up to TensorRT 10, the tensors at the engine's edges, and memory totals.

Only what the builder prints is read. Lines of layers in the inspector's words are read by ``readers.printed``.
"""

from __future__ import annotations

import re

from rtlab.core.engine import DTYPES, Layer, Tensor

#: A tensor as logs and the inspector's text form print it; its type stands in one of two places.
TENSOR = re.compile(
    r"\{ Name: (?P<name>.*?), (?:Location: (?P<location>\w+), )?Dimensions: \[(?P<shape>[-\d, ]*)\]"
    r"(?:, Strides: \[(?P<strides>[-\d, ]*)\])?(?:, StrideOrder: \[[-\d, ]*\])?"
    r"(?:, Format/Datatype: (?P<both>[^}]*?))?(?:, Data[tT]ype: (?P<dtype>\w+))?(?:, Format: (?P<format>[^}]*?))?\s*\}"
)
EDGE = re.compile(
    r"^ ?Name: (?P<name>.*), IOMode: (?P<mode>Input|Output), DataType: (?P<dtype>\w+), "
    r"Dimensions: \[(?P<shape>[-\d, ]*)\]"
)
_LABEL = "[ONNX Layer: "
_BODIES = {"then_branch", "else_branch", "body"}
TOTALS = {
    "activation": re.compile(r"Total Activation Memory: (\d+)"),
    "weights": re.compile(r"Total Weights Memory: (\d+)"),
    "scratch": re.compile(r"Max Scratch Memory: (\d+)"),
    "host": re.compile(r"Total Host Persistent Memory: (\d+)"),
    "device": re.compile(r"Total Device Persistent Memory: (\d+)"),
}
#: Keys that the inspector's text form of TensorRT has, and the listing of TensorRT-RTX has not.
PARAMETERS = re.compile(r"\], ParameterType: \w|, TacticValue: 0x")
#: Never so long that Python refuses to read it.
_NUMBER = re.compile(r"-?\d{1,18}")
_PROFILE = re.compile(r" \[profile \d+\]$")
#: A line of the older listing: "Layer(Type): name, Tactic: id, tensors -> tensors".
_STEP = re.compile(r"^Layer\((?P<kind>[^)]*)\): (?P<name>.*), Tactic: (?P<tactic>-?\w+), ?(?P<tensors>.*)$")
#: "x (Half[1,64:32,7,7])" since TensorRT 8.6, "x[Half(1,64:32,7,7)]" before.
_OPERAND = re.compile(
    r"(?P<name>.*?)(?: \((?P<dtype>\w+)\[(?P<dims>[-\d,: ]*)\]\)|\[(?P<old>\w+)\((?P<older>[-\d,: ]*)\)\])"
    r"(?P<next>, | -> |\s*$)"
)


def parse_edge(line: str) -> tuple[bool, Tensor] | None:
    """Whether a tensor at the engine's edge is an input, and the tensor; None for other lines and profiles."""
    match = EDGE.match(line)
    if match is None or _PROFILE.search(match["name"]):
        return None
    return match["mode"] == "Input", Tensor(
        match["name"], _normalize_dtype(match["dtype"]), _parse_ints(match["shape"])
    )


def parse_layer(line: str, index: int) -> Layer | None:
    """The layer in a line of the listing that builders up to TensorRT 10 print, or None for any other line.

    Names hold any text, so tensors are taken apart at their types, and the first arrow behind a type parts what is
    read from what is written.
    """
    match = _STEP.match(line)
    if match is None:
        return None
    text = match["tensors"].lstrip()
    sides: tuple[list[Tensor], list[Tensor]] = ([], [])
    side = int(text.startswith("->"))
    position = 3 * side
    while position < len(text) and (operand := _OPERAND.match(text, position)) is not None:
        sides[side].append(_parse_operand(operand))
        side = side or int(operand["next"] == " -> ")
        position = operand.end()
    # Every layer writes something: without that the line is cut off.
    if position < len(text) or not sides[1]:
        return None
    name = match["name"]
    return Layer(
        f"{index}:{name}",
        name,
        match["kind"],
        index,
        tuple(sides[0]),
        tuple(sides[1]),
        tactic=match["tactic"],
    )


def _parse_operand(match: re.Match[str]) -> Tensor:
    kind, dims = match["dtype"] or match["old"], match["dims"] or match["older"] or ""
    # "64:32" is a dimension of 64 that is stored in vectors of 32.
    vector_sizes = [d.partition(":")[2].strip() for d in dims.split(",") if ":" in d]
    layout = f"vectors of {vector_sizes[0]}" if vector_sizes else ""
    # A dynamic dimension is any negative number up to TensorRT 8.
    shape = tuple(max(d, -1) for d in _parse_ints(re.sub(r":[-\d ]*", "", dims)))
    return Tensor(match["name"], _normalize_dtype(kind), shape, layout)


def parse_node_ids(metadata: str) -> tuple[str, ...]:
    """Node ids in a list of labels, each once, in order.

    A label inside a body reads ``inner | branch (graph) | owner (If)``: the inner node and its owners all belong
    to the layer.
    """
    ids: dict[str, None] = {}
    # A label that nothing closes is none; a pattern would look for its end from each beginning anew.
    label_parts = (rest.partition("]") for rest in metadata.split(_LABEL)[1:])
    for first, *owners in (label.split(" | ") for label, end, _ in label_parts if end):
        # A branch or body is a graph, not a node, though a node may bear its name.
        owner_parts = (owner.rpartition(" (") for owner in owners)
        nodes = (name for name, _, kind in owner_parts if kind.rstrip(")") not in _BODIES)
        ids.update(dict.fromkeys(filter(None, (first, *nodes))))
    return tuple(ids)


def _normalize_dtype(name: str) -> str:
    """A type in rtlab's words; one that is new stands as it is told, in small letters."""
    return DTYPES.get(name, name.lower())


def _parse_ints(text: str) -> tuple[int, ...]:
    return tuple(int(t) for t in _NUMBER.findall(text))
