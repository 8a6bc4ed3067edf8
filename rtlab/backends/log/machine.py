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
_WORKSPACE = re.compile(r"Memory Pools: workspace: (?P<workspace>\d+(?:\.\d+)?(?:e-?\d+)?) MiB")
_VERSION = re.compile(r"TensorRT version: (?P<version>\d+\.\d+(?:\.\d+)*)")
_BANNER = re.compile(r"&&&& RUNNING .*?\[TensorRT v(?P<digits>\d{4,6})\]")
_LIBRARY = re.compile(
    r"oad(?:ing|ed)? shared library libnvinfer_builder_resource(?:_sm(?P<sm>\d{2,3}))?\.so\.(?P<version>[\d.]*\d)"
)
#: Up to this many digits a version has one for its first number.
_SHORT = 4


@dataclasses.dataclass
class Header:
    """What a log tells before a build begins: the machine, and how the parser named layers and tensors.

    ``latency`` is what trtexec tells at its end: milliseconds of an inference on the GPU, in the median. ``workspace``
    is the pool that trtexec gave the builder, in bytes, None where it is the default.
    """

    version: str = ""
    device: str = ""
    latency: float | None = None
    workspace: int | None = None
    target: Target = dataclasses.field(default_factory=lambda: Target("unknown"))
    inputs: dict[str, Tensor] = dataclasses.field(default_factory=dict)
    outputs: dict[str, None] = dataclasses.field(default_factory=dict)
    nodes: dict[str, str] = dataclasses.field(default_factory=dict)
    tensors: dict[str, str] = dataclasses.field(default_factory=dict)
    known: set[str] = dataclasses.field(default_factory=set)

    def words(self) -> str:
        """Version, GPU and latency, as far as they are known."""
        told = [f"TensorRT {self.version}" if self.version else "", self.device]
        told.append("" if self.latency is None else f"{self.latency:.4g} ms per inference in the median")
        return ", ".join(t for t in told if t)

    def learn(self, found: re.Match[str]) -> None:
        """Take in what ``machine`` found."""
        told = found.groupdict()
        if found.re is _BANNER:
            # 8502 is 8.5.2, 101601 is 10.16.1.
            digits = told["digits"]
            split = 1 if len(digits) <= _SHORT else len(digits) - 4
            minor, patch = digits[split:-2], digits[-2:]
            self.version = f"{digits[:split]}.{int(minor)}.{int(patch)}"
        elif found.re is _DEVICE:
            self.device = told["name"].strip()
        elif found.re is _CAPABILITY:
            self.target = Target(f"sm{int(told['major'])}{told['minor']}")
        elif found.re is _LATENCY:
            self.latency = float(told["latency"])
        elif found.re is _WORKSPACE:
            self.workspace = round(float(told["workspace"]) * 2**20)
        elif found.re is _VERSION:
            self.version = told["version"]
        else:
            self.version = self.version or told["version"]
            if self.target.sm is None and told["sm"]:
                self.target = Target(f"sm{told['sm']}")


def machine(text: str) -> re.Match[str] | None:
    """What a message tells of machine or version, for ``Header.learn``; None where it tells nothing."""
    rules = (_BANNER, _DEVICE, _CAPABILITY, _VERSION, _LIBRARY, _LATENCY, _WORKSPACE)
    return next((found for rule in rules if (found := rule.search(text))), None)


def header(lines: Iterable[str]) -> Header:
    """What lines of a log tell of machine and version."""
    told = Header()
    for line in lines:
        if (found := machine(line)) is not None:
            told.learn(found)
    return told
