"""Protocols of a backend. Any object with these methods is a backend; no base class is needed.

A backend is a ``Backend`` that follows one or more of ``Builder``, ``Runner``, ``Opener``, ``Counter``, ``Tuner``,
``Explainer`` and ``Reader``, as its ``Capabilities`` declare. ``Evaluator`` computes rtlab's references.
``rtlab.testing.conformance`` checks a backend against these protocols; docs/backend.md has one in sixty lines.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal, Protocol, TypeVar, runtime_checkable

from rtlab.core.arrays import Batch
from rtlab.core.buildlog import Entry, Operator
from rtlab.core.compiler_info import Maker
from rtlab.core.engine import Engine, Layer, Tensor  # noqa: F401 - with all imports here for backends
from rtlab.core.model import Model
from rtlab.core.trace import Outputs, Profile, Recording, Throughput
from rtlab.core.variant import Precision, Target, Variant

R = TypeVar("R")


class Progress(Protocol):
    """The reporter of long work, which also says when to stop."""

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

    ``level`` is ONNX Runtime's optimization level (``basic`` or ``all``); other backends ignore it. With ``keep_plan``
    the engine has its serialized form, which is as large as the weights. ``several`` is True where more
    builds follow at once, so that a worker process may wait for the next.
    """

    model: Model
    variant: Variant
    limits: Limits = Limits()
    level: str = "all"
    keep_plan: bool = False
    several: bool = False


@dataclasses.dataclass(frozen=True)
class Availability:
    """Whether a backend works here, with its version, or the reason and the next step."""

    ok: bool
    version: str = ""
    reason: str = ""


@dataclasses.dataclass(frozen=True)
class Capabilities:
    """The abilities of a backend on this machine.

    Attributes:
        targets: What it compiles for, the default first.
        precisions: Those that it compiles; for single targets see also ``Target.refusal``.
        builds, runs, reads, opens, counts, forces, explains, recalls: Whether it follows the protocol in ``ROLES``.
        options: Whether it takes ``BuildOptions``.
        times: What ``profile`` times: each of the ``layers`` beside whole inferences, or ``inferences`` only.
        emulates: Whether it lacks arithmetic for some precisions that it compiles, so that a variant's values are
            those of ``Prepared.emulation`` at level ``basic``, and only its times are those of its engine.
        local: The target that runs here; None where all of ``targets`` do.
        device: The processor of ``local`` in words.
        maker: The compiler of its engines.
    """

    targets: tuple[Target, ...]
    precisions: tuple[Precision, ...]
    builds: bool = False
    runs: bool = False
    reads: bool = False
    options: bool = False
    opens: bool = False
    counts: bool = False
    forces: bool = False
    explains: bool = False
    recalls: bool = False
    times: Literal["layers", "inferences"] = "layers"
    emulates: bool = False
    local: Target | None = None
    device: str = ""
    maker: Maker = dataclasses.field(default_factory=Maker)

    def runs_itself(self, engine: Engine) -> bool:
        """True if the backend can execute this engine on this machine with its own arithmetic."""
        return self.runs and not self.emulates and self.local in {None, engine.target}


class View(Protocol):
    """A view of a study."""

    def changed(self) -> None:
        """Update after a change of the study; called in the thread that made it."""


@runtime_checkable
class Backend(Protocol):
    """The part that every backend has."""

    name: str

    def availability(self) -> Availability:
        """Find package and device without importing a vendor package."""

    def capabilities(self) -> Capabilities:
        """Targets and precisions, valid when available."""


@runtime_checkable
class Builder(Protocol):
    """Builds engines."""

    def build(self, request: BuildRequest, progress: Progress) -> Engine:
        """Compile.

        The engine's ``backend`` is the name of this one, its ``maker`` that of the capabilities, and it can be pickled:
        a ``Runner`` needs its ``plan`` or ``runnable`` alone.

        Raises:
            BuildError: the compiler refuses the model, crashes, or passes a limit.
            VariantError: the target, the precision or an option is not supported.
            Unavailable: a package, driver or device is missing.
            Cancelled: ``progress`` asked to stop.
        """


@runtime_checkable
class Runner(Protocol):
    """Runs engines that it built itself, or opened."""

    @property
    def source(self) -> str:
        """The origin of its numbers in words: the runner, and where that matters the device."""

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

        Within a budget of ``seconds`` there are fewer of both, down to one timed inference (``Profile.runs``). Raises
        ``RunError``, also after ``limit_s`` seconds (by default those of ``Limits``), and ``Cancelled`` within a second
        after ``progress`` asks to stop.
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
        """Run one batch and return the named values of the runnable model (graph outputs when none are named).

        A session stays open between calls with the same engine and names, until ``release``. Limits and errors are
        those of ``profile``.
        """

    def unfused(
        self, engine: Engine, inputs: Batch, progress: Progress, *, limit_s: float | None = None
    ) -> tuple[str, ...]:
        """Names of the values that ``outputs`` can return without changing what the engine computes.

        The outputs of the graph need not be among them. Errors are those of ``outputs``.
        """

    def release(self, engine: Engine) -> None:
        """Close the session of an engine."""


@runtime_checkable
class Opener(Protocol):
    """Opens serialized engines."""

    def open_plan(self, plan: str | Path | bytes, progress: Progress | None = None) -> Engine:
        """Open a serialized engine: a file, which is only read, or its bytes.

        Raises:
            ReadError: the file is missing, or no engine of this compiler.
            Unavailable: version or device do not match the engine's.
            RunError: the compiler's runtime fails on it.
        """

    def save(self, engine: Engine, path: str | Path) -> None:
        """Write an engine's plan to a file for ``open_plan``; raises ``RunError``."""


@runtime_checkable
class Counter(Protocol):
    """Counts inferences that run at the same time."""

    def throughput(
        self,
        engine: Engine,
        inputs: Batch,
        progress: Progress,
        *,
        streams: int = 2,
        seconds: float = 2.0,
        warmup: int = 5,
    ) -> Throughput:
        """Count inferences of one batch over ``streams`` streams for some seconds.

        Raises:
            RunError: the engine cannot be run, or a number makes no sense.
            Cancelled: ``progress`` asked to stop.
        """


@runtime_checkable
class Tuner(Protocol):
    """Times tactics while it builds, into a cache that can be edited to force others."""

    @property
    def flag(self) -> str:
        """The member of ``BuildOptions.flags`` that makes the cache editable."""

    def operators(self, log: str) -> tuple[Operator, ...]:
        """The operators whose tactics the log of a build lists."""

    def remembered(
        self, cache: str | Path, keys: Sequence[str], progress: Progress | None = None
    ) -> Mapping[str, Entry]:
        """The entries of a cache, by those of ``keys`` that it has.

        Raises:
            ReadError: the file cannot be read, or is of another version or device.
            VariantError: the installed compiler cannot edit caches.
            BackendError: it crashed or passed a limit.
        """

    def forced(
        self, cache: str | Path, copy: str | Path, entries: Sequence[Entry], progress: Progress | None = None
    ) -> Mapping[str, Entry]:
        """Write a copy of a cache with other tactics in it; errors are those of ``remembered``."""


@dataclasses.dataclass(frozen=True)
class Ruled:
    """Whether two nodes become one layer by published rules, and by which, with its source.

    ``fused`` is None where one of them has no layer. ``rule`` is empty where there is none for the two; ``text`` is the
    reason in words.
    """

    fused: bool | None
    rule: str
    source: str
    text: str


@runtime_checkable
class Explainer(Protocol):
    """Has the fusion rules of its engines."""

    def explain(self, model: Model, first: str, second: str) -> Ruled:
        """Whether and why two nodes of a model become one layer; raises ``BuildError`` where it cannot build it."""


@runtime_checkable
class Recaller(Protocol):
    """Has builds that were recorded on other machines, where its compiler is not here.

    Its ``build`` returns the recorded engine of a request (``Engine.recorded``), and raises ``Unavailable`` where there
    is none.
    """

    def recalled(self, model: Model) -> tuple[str, ...]:
        """The releases of the compiler with recorded builds of a model, the newest first."""


@runtime_checkable
class Reader(Protocol):
    """Reads files of another machine."""

    def read(self, files: Mapping[str, Path], *, select: int | None = None) -> Recording:
        """Read files by kind, such as ``layers``, ``profile`` and ``log``.

        ``select`` is the optimization profile to show, where the engine has several.

        Raises:
            ReadError: a file is missing, damaged or of another kind, or files belong to different engines.
        """


@runtime_checkable
class Evaluator(Builder, Runner, Protocol):
    """Computes any value of any model here, for calibration and as the reference of others, on so many ``threads``."""

    name: str
    threads: int

    def reading(
        self,
        model: Model,
        names: Sequence[str],
        *,
        progress: Progress | None = None,
        limit_s: float | None = None,
    ) -> AbstractContextManager[Callable[[Batch], Outputs]]:
        """A context with a function that returns the named values of a model for a batch."""

    def reducing(
        self,
        reads: Sequence[tuple[Model, Sequence[str]]],
        reduce: Callable[[Sequence[Outputs], int], R],
        receive: Callable[[R], None],
        *,
        progress: Progress | None = None,
        limit_s: float | None = None,
    ) -> AbstractContextManager[Callable[[Batch | None, int], None]]:
        """A context with a function that runs models on a batch of so many samples, and has their values reduced.

        ``reads`` has each model, all of the same inputs, with the names of its values; no fusion changes how they are
        computed. ``reduce`` takes these by model, and the number of samples, where they are computed: it is pickled
        once, with what it is bound to. It works while the next batch is computed. ``receive`` gets what it returns for
        each batch in turn, during later calls, of which the last one is without a batch.
        """


#: The protocols of a backend by the field of ``Capabilities`` that declares them.
ROLES: Mapping[str, type] = {
    "builds": Builder,
    "runs": Runner,
    "opens": Opener,
    "counts": Counter,
    "forces": Tuner,
    "explains": Explainer,
    "recalls": Recaller,
    "reads": Reader,
}


def lacking(backend: object, role: str) -> tuple[str, ...]:
    """The members of a role's protocol, a key of ``ROLES``, that an object does not have."""
    members = [
        n for n, m in vars(ROLES[role]).items() if n[0] != "_" and (callable(m) or isinstance(m, property))
    ]
    return tuple(n for n in members if not hasattr(backend, n))
