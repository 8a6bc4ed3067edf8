"""What a backend may offer. Any object with these methods is a backend; no base class is needed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from rtlab.core.arrays import Batch
from rtlab.core.data import CalibrationData
from rtlab.core.engine import Engine
from rtlab.core.model import Model
from rtlab.core.trace import Outputs, Profile, Recording
from rtlab.core.variant import Precision, Target, Variant


class Progress(Protocol):
    """Where long work reports, and where it learns that it should stop."""

    def phase(self, name: str, total: int | None = None) -> None:
        """Open a phase of ``total`` steps (None when unknown)."""

    def advance(self, steps: int = 1) -> None:
        """Report finished steps of the open phase."""

    def stopped(self) -> bool:
        """Whether the work should end now by raising ``Cancelled``."""


@dataclasses.dataclass(frozen=True)
class Limits:
    """Bounds of one build: wall time in seconds, memory and stack in bytes."""

    seconds: float = 600.0
    memory: int = 16 << 30
    stack: int = 1 << 30


@dataclasses.dataclass(frozen=True)
class BuildRequest:
    """A model that already expresses its precision, and what it is built for.

    ``level`` is ONNX Runtime's optimization level (``basic`` or ``all``); other backends ignore it. ``keep_plan``
    asks for the serialized engine, which is as large as the weights. ``data`` and ``cache`` feed TensorRT 10's own
    calibrators, where ``variant.options`` asks for its implicit INT8: samples, or the text of a calibration cache.
    """

    model: Model
    variant: Variant
    limits: Limits = Limits()
    level: str = "all"
    keep_plan: bool = False
    data: CalibrationData | None = None
    cache: str = ""


@dataclasses.dataclass(frozen=True)
class Availability:
    """Whether a backend works here, with its version, or the reason and the next step."""

    ok: bool
    version: str = ""
    reason: str = ""


@dataclasses.dataclass(frozen=True)
class Capabilities:
    """What a backend can do here. ``options`` says whether it takes ``BuildOptions``."""

    targets: tuple[Target, ...]
    precisions: tuple[Precision, ...]
    builds: bool = False
    runs: bool = False
    reads: bool = False
    options: bool = False


class View(Protocol):
    """Something that shows a study, and is told when there is more to show."""

    def changed(self) -> None:
        """The study has other results than before; called in the thread that has them."""


class Backend(Protocol):
    """What every backend has, whichever of the three other protocols it follows."""

    name: str

    def availability(self) -> Availability:
        """Look for package and device without importing a vendor package."""

    def capabilities(self) -> Capabilities:
        """Targets and precisions, valid when available."""


@runtime_checkable
class Builder(Protocol):
    """Makes engines."""

    def build(self, request: BuildRequest, progress: Progress) -> Engine:
        """Compile; raises ``BuildError``, ``Unavailable`` or ``Cancelled``."""


@runtime_checkable
class Runner(Protocol):
    """Runs engines that it built itself."""

    def profile(
        self,
        engine: Engine,
        inputs: Batch,
        progress: Progress,
        *,
        runs: int = 30,
        warmup: int = 5,
        seconds: float | None = None,
        limit_s: float | None = None,
    ) -> Profile:
        """Time each layer over ``runs`` inferences of one batch after ``warmup`` untimed ones.

        In a budget of ``seconds`` there are fewer of both, down to one timed inference, and ``Profile.runs`` tells how
        many; ``Profile.merged`` adds those of a later call. Raises ``RunError``, after ``limit_s`` seconds (by default
        those of ``Limits``) too, and ``Cancelled`` within a second after ``progress`` asks to stop.
        """

    def outputs(
        self,
        engine: Engine,
        inputs: Batch,
        names: Sequence[str] = (),
        *,
        progress: Progress | None = None,
        limit_s: float | None = None,
    ) -> Outputs:
        """Run one batch and return the named values (graph outputs when none are named).

        Any value of the engine's runnable model may be named. A session is kept between calls with the same
        engine and names, so streaming many batches costs one set-up; ``release`` ends it. Limits and errors are those
        of ``profile``.
        """

    def release(self, engine: Engine) -> None:
        """Forget what is kept for an engine."""


@runtime_checkable
class Reader(Protocol):
    """Reads what another machine wrote."""

    def read(self, files: Mapping[str, Path]) -> Recording:
        """Read files by kind, such as ``layers``, ``profile`` and ``log``; raises ``ReadError``."""
