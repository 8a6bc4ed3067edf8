"""What a verbose log tells before a build begins: the machine, the version, and names that the ONNX parser gave."""

from __future__ import annotations

import dataclasses
import re

from rtlab.core.engine import Tensor
from rtlab.core.variant import Target

_DEVICE = re.compile(r"Selected Device: (?P<name>.+)")
_CAPABILITY = re.compile(r"Compute Capability: (?P<major>\d{1,2})\.(?P<minor>\d)\b")
_VERSION = re.compile(r"TensorRT version: (?P<version>\d+\.\d+(?:\.\d+)*)")
_BANNER = re.compile(r"&&&& RUNNING .*?\[TensorRT v(?P<digits>\d{4,6})\]")
_LIBRARY = re.compile(
    r"oad(?:ing|ed)? shared library libnvinfer_builder_resource(?:_sm(?P<sm>\d{2,3}))?\.so\.(?P<version>[\d.]*\d)"
)
#: Up to this many digits a version has one for its first number.
_SHORT = 4


@dataclasses.dataclass
class Header:
    """What a log tells before a build begins: the machine, and how the parser named layers and tensors."""

    version: str = ""
    device: str = ""
    target: Target = dataclasses.field(default_factory=lambda: Target("unknown"))
    inputs: dict[str, Tensor] = dataclasses.field(default_factory=dict)
    outputs: dict[str, None] = dataclasses.field(default_factory=dict)
    nodes: dict[str, str] = dataclasses.field(default_factory=dict)
    tensors: dict[str, str] = dataclasses.field(default_factory=dict)
    known: set[str] = dataclasses.field(default_factory=set)

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
        elif found.re is _VERSION:
            self.version = told["version"]
        else:
            self.version = self.version or told["version"]
            if self.target.sm is None and told["sm"]:
                self.target = Target(f"sm{told['sm']}")


def machine(text: str) -> re.Match[str] | None:
    """What a message tells of machine or version, for ``Header.learn``; None where it tells nothing."""
    rules = (_BANNER, _DEVICE, _CAPABILITY, _VERSION, _LIBRARY)
    return next((found for rule in rules if (found := rule.search(text))), None)
