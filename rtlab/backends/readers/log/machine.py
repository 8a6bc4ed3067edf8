"""What a verbose log tells before a build begins: the machine, the version, and names that the ONNX parser gave."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable

from rtlab.core.engine import Tensor
from rtlab.core.variant import Target

_DEVICE = re.compile(r"Selected Device: (?P<name>.+)")
_CAPABILITY = re.compile(r"Compute Capability: (?P<major>\d{1,2})\.(?P<minor>\d)\b")
#: The median of the latencies that trtexec sums up at its end.
_LATENCY = re.compile(r"GPU Compute Time: min = .*?, median = (?P<latency>\d+(?:\.\d+)?(?:e-?\d+)?) ms")
_THROUGHPUT = re.compile(r"Throughput: (?P<throughput>\d+(?:\.\d+)?(?:e[+-]?\d+)?) qps")
_WORKSPACE = re.compile(r"Memory Pools: workspace: (?P<workspace>\d+(?:\.\d+)?(?:e-?\d+)?) MiB")
_VERSION = re.compile(r"TensorRT version: (?P<version>\d+\.\d+(?:\.\d+)*)")
_BANNER = re.compile(r"&&&& RUNNING .*?\[TensorRT v(?P<digits>\d{4,6})\]")
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
