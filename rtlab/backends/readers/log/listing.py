"""What a builder's verbose log lists: layers up to TensorRT 10, the tensors at the engine's edges, and memory totals.

Only what the builder prints is read. Lines of layers in the inspector's words are read by ``readers.printed``.
"""

from __future__ import annotations

import re

from rtlab.core.engine import DTYPES, Layer, Tensor
from rtlab.core.phrases import pluralize

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
#: The same cut off behind its name; and what may be left of the sign between two tensors.
_CUT = re.compile(r"^Layer\((?P<kind>[^)]*)\): (?P<name>.*), Tactic: (?P<rest>.*)$")
_TACTIC = re.compile(r"-?\w*")
_BETWEEN = " ,->"
#: "x (Half[1,64:32,7,7])" since TensorRT 8.6, "x[Half(1,64:32,7,7)]" before.
_OPERAND = re.compile(
    r"(?P<name>.*?)(?: \((?P<dtype>\w+)\[(?P<dims>[-\d,: ]*)\]\)|\[(?P<old>\w+)\((?P<older>[-\d,: ]*)\)\])"
    r"(?P<next>, | -> |\s*$)"
)


def parse_edge(line: str) -> tuple[bool, Tensor] | None:
    """Whether a tensor at the edge of the engine is an input, and the tensor; None for any other line.

    Tensors of a second profile and later ones repeat those of the first and are left out.
    """
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
    reads, writes, is_complete, _ = _parse_operands(match["tensors"].lstrip())
    # Every layer writes something: without that the line is cut off.
    return _make_layer(match, index, reads, writes, match["tactic"]) if is_complete and writes else None


def parse_partial_layer(line: str, index: int) -> tuple[Layer, str] | None:
    """The layer of such a line that is cut off behind its name, with what is whole of it, and what is missing in words.

    None where no tactic begins behind the name, which may be cut itself then.
    """
    match = _CUT.match(line)
    if match is None:
        return None
    tactic, comma, rest = match["rest"].partition(",")
    if _TACTIC.fullmatch(tactic) is None:
        return None
    if not comma:
        missing = "its tactic and its tensors are missing"
        return _make_layer(
            match, index, (), (), ""
        ), f"The line is cut off behind the layer's name: {missing}. Give the whole line."
    reads, writes, _, has_arrow = _parse_operands(rest.strip().rstrip(_BETWEEN))
    has_arrow = has_arrow or rest.rstrip().endswith("->")
    count = len(reads) + len(writes)
    summary = f"{pluralize(count, 'tensor')} of it can be read" if count else "none of them is whole"
    missing = (
        "what else it writes is missing" if has_arrow else "what it writes is missing, and what else it reads"
    )
    return (
        _make_layer(match, index, reads, writes, tactic),
        f"The line is cut off within the tensors of its layer: {summary}; {missing}. Give the whole line.",
    )


def _make_layer(
    match: re.Match[str], index: int, reads: tuple[Tensor, ...], writes: tuple[Tensor, ...], tactic: str
) -> Layer:
    name = match["name"]
    return Layer(f"{index}:{name}", name, match["kind"], index, reads, writes, tactic=tactic)


def _parse_operands(text: str) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...], bool, bool]:
    """The tensors before the arrow and behind it, whether that is all of the text, and whether there is an arrow."""
    sides: tuple[list[Tensor], list[Tensor]] = ([], [])
    side = int(text.startswith("->"))
    position = min(3 * side, len(text))
    while position < len(text) and (operand := _OPERAND.match(text, position)) is not None:
        sides[side].append(_parse_operand(operand))
        side = side or int(operand["next"] == " -> ")
        position = operand.end()
    return tuple(sides[0]), tuple(sides[1]), position >= len(text), bool(side)


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
    for label in (label for label, end, _ in label_parts if end):
        if label and " | " not in label:
            ids[label] = None
            continue
        parts = label.split(" | ")
        owners = (p.rpartition(" (") for p in parts[1:])
        # A branch or body is a graph, not a node, though a node may bear its name.
        nodes = (name for name, _, kind in owners if kind.rstrip(")") not in _BODIES)
        for part in (parts[0], *nodes):
            if part:
                ids[part] = None
    return tuple(ids)


def _normalize_dtype(name: str) -> str:
    """A type in rtlab's words; one that is new stands as it is told, in small letters."""
    return DTYPES.get(name, name.lower())


def _parse_ints(text: str) -> tuple[int, ...]:
    return tuple(int(t) for t in _NUMBER.findall(text))
