"""What a builder's verbose log lists: layers up to TensorRT 10, the tensors at the engine's edges, and memory totals.

Only what the builder prints is read. Lines of layers in the inspector's words are read by ``readers.printed``.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable

from rtlab.core.engine import DTYPES, Layer, Tensor
from rtlab.core.variant import Target

_DEVICE = re.compile(r"Selected Device: (?P<name>.+)")
_CAPABILITY = re.compile(r"Compute Capability: (?P<major>\d{1,2})\.(?P<minor>\d)\b")
#: The median of the latencies that trtexec sums up at its end.
_LATENCY = re.compile(r"GPU Compute Time: min = .*?, median = (?P<latency>\d+(?:\.\d+)?(?:e-?\d+)?) ms")
_THROUGHPUT = re.compile(r"Throughput: (?P<throughput>\d+(?:\.\d+)?(?:e[+-]?\d+)?) qps")
_WORKSPACE = re.compile(r"Memory Pools: workspace: (?P<workspace>\d+(?:\.\d+)?(?:e-?\d+)?) MiB")
_VERSION = re.compile(r"(?:TensorRT version:|starting export with TensorRT) (?P<version>\d+\.\d+(?:\.\d+)*)")
_BANNER = re.compile(r"&&&& [A-Z]+ .*?\[TensorRT v(?P<digits>\d{4,6})\]")
_LIBRARY = re.compile(
    r"oad(?:ing|ed)? shared library libnvinfer_builder_resource(?:_sm(?P<sm>\d{2,3}))?\.so\.(?P<version>[\d.]*\d)"
)
_REGISTERED = re.compile(
    r"^Registering (?P<what>layer|tensor): (?P<ours>.+) for ONNX (?:node|tensor): (?P<theirs>.+)"
)
_INPUT = re.compile(
    r"^Adding network input: (?P<name>.*) with dtype: (?P<dtype>\w+), dimensions: \((?P<shape>[-\d, ]*)\)"
)
#: trtexec, up to TensorRT 8.5 and later.
_BOUND = re.compile(
    r"(?:Created )?(?P<side>[Ii]n|[Oo]ut)put binding for (?P<name>.*) with dimensions (?P<shape>[-\dx]+)"
    r"(?: and type (?P<dtype>\w+) is created)?"
)
_OUTPUT = re.compile(r"^Marking (?P<ours>.*) as output: (?P<name>.*)")
#: How the parser calls types that rtlab calls otherwise.
_PARSED = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
#: Up to this many digits a version has one for its first number.
_SHORT = 4


@dataclasses.dataclass
class Header:
    """What a log tells before a build begins: the machine, and how the parser named layers and tensors.

    ``latency`` is what trtexec tells at its end: milliseconds of an inference on the GPU, in the median; ``throughput``
    inferences in a second. ``workspace`` is the pool that trtexec gave the builder, in bytes, None for the default.
    """

    version: str = ""
    device: str = ""
    latency: float | None = None
    workspace: int | None = None
    throughput: float | None = None
    target: Target = dataclasses.field(default_factory=lambda: Target("unknown"))
    inputs: dict[str, Tensor] = dataclasses.field(default_factory=dict)
    outputs: dict[str, None] = dataclasses.field(default_factory=dict)
    #: Tensors that trtexec gave and got, with their shapes in the run.
    bound_inputs: dict[str, Tensor] = dataclasses.field(default_factory=dict)
    bound_outputs: dict[str, Tensor] = dataclasses.field(default_factory=dict)
    nodes: dict[str, str] = dataclasses.field(default_factory=dict)
    tensors: dict[str, str] = dataclasses.field(default_factory=dict)
    layer_names: set[str] = dataclasses.field(default_factory=set)

    def read_binding(self, text: str) -> str:
        """Take in a tensor of a run; gives its name, empty where the line tells none."""
        match = _BOUND.match(text)
        if match is None:
            return ""
        shape = tuple(int(d) for d in re.findall(r"-?\d{1,18}", match["shape"]))
        side = self.bound_inputs if match["side"].lower() == "in" else self.bound_outputs
        side[match["name"]] = Tensor(match["name"], match["dtype"] or "", shape)
        return match["name"]

    def describe(self) -> str:
        """Version, GPU and latency, as far as they are known."""
        parts = [f"TensorRT {self.version}"] * bool(self.version) + [self.device] * bool(self.device)
        if self.latency is not None:
            parts.append(f"{self.latency:.4g} ms per inference in the median")
        if self.throughput is not None:
            parts.append(f"{self.throughput:.6g} inferences per second")
        return ", ".join(parts)

    def update(self, match: re.Match[str]) -> None:
        """Take in what ``match_header_line`` found."""
        groups = match.groupdict()
        if match.re in {_REGISTERED, _INPUT, _OUTPUT}:
            self._update_network(match)
        elif match.re is _BANNER:
            # 8502 is 8.5.2, 101601 is 10.16.1.
            digits = groups["digits"]
            split = 1 if len(digits) <= _SHORT else len(digits) - 4
            self.version = f"{digits[:split]}.{int(digits[split:-2])}.{int(digits[-2:])}"
        elif match.re is _DEVICE:
            self.device = groups["name"].strip()
        elif match.re is _CAPABILITY:
            self.target = Target(f"sm{int(groups['major'])}{groups['minor']}")
        elif match.re is _LATENCY:
            self.latency = float(groups["latency"])
        elif match.re is _THROUGHPUT:
            self.throughput = float(groups["throughput"])
        elif match.re is _WORKSPACE:
            self.workspace = round(float(groups["workspace"]) * 2**20)
        elif match.re is _VERSION:
            self.version = groups["version"]
        else:
            self.version = self.version or groups["version"]
            if self.target.sm is None and groups["sm"]:
                self.target = Target(f"sm{groups['sm']}")

    def _update_network(self, match: re.Match[str]) -> None:
        """Take in an input, an output, or the name of a layer or tensor."""
        if match.re is _REGISTERED:
            ours, theirs = match["ours"], match["theirs"]
            is_layer = match["what"] == "layer"
            if ours != theirs:
                (self.nodes if is_layer else self.tensors)[ours] = theirs
            if is_layer:
                self.layer_names.add(ours)
        elif match.re is _INPUT:
            dtype = _PARSED.get(match["dtype"], match["dtype"])
            shape = tuple(int(d) for d in re.findall(r"-?\d{1,18}", match["shape"]))
            self.inputs[match["name"]] = Tensor(match["name"], dtype, shape)
        else:
            self.outputs[match["name"]] = None


def match_header_line(text: str) -> re.Match[str] | None:
    """What a message tells of network, machine or version, for ``Header.update``; None where it tells nothing."""
    rules = (
        _REGISTERED, _INPUT, _OUTPUT, _BANNER, _DEVICE, _CAPABILITY, _VERSION, _LIBRARY, _LATENCY, _THROUGHPUT,
        _WORKSPACE,
    )  # fmt: skip
    return next((match for rule in rules if (match := rule.search(text))), None)


def read_header(lines: Iterable[str]) -> Header:
    """What lines of a log tell of machine and version."""
    log_header = Header()
    for line in lines:
        if (match := match_header_line(line)) is not None:
            log_header.update(match)
    return log_header


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
    # A label that nothing closes is none; a pattern would look for its end from each beginning anew.
    labels = [rest[:end] for rest in metadata.split(_LABEL)[1:] if (end := rest.find("]")) > 0]
    if " | " not in metadata:
        return tuple(dict.fromkeys(labels))
    ids: dict[str, None] = {}
    for first, *owners in (label.split(" | ") for label in labels):
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
