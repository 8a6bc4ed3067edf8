"""What a backend may offer. Any object with these methods is a backend; no base class is needed.

A backend is a ``Backend`` that follows one or more of ``Builder``, ``Runner``, ``Opener``, ``Counter``, ``Tuner``,
``Explainer`` and ``Reader``, and whose ``Capabilities`` say which: rtlab calls what is said there, and nothing else.
``Evaluator`` is what rtlab itself computes references with. ``rtlab.testing.conformance`` checks a backend against all
that stands here, and docs/backend.md has one in sixty lines.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from rtlab.core.arrays import Batch
from rtlab.core.buildlog import Entry, Operator
from rtlab.core.compiler_info import Maker
from rtlab.core.data import CalibrationData
from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.core.model import Model
from rtlab.core.trace import Outputs, Profile, Recording, Throughput
from rtlab.core.variant import Precision, Target, Variant

#: The protocols, and the nouns that they speak of: with ``rtlab.errors``, all that a backend needs.
__all__ = [
    "ROLES",
    "Availability",
    "Backend",
    "Batch",
    "BuildRequest",
    "Builder",
    "CalibrationData",
    "Capabilities",
    "Counter",
    "Engine",
    "Entry",
    "Evaluator",
    "Explainer",
    "Layer",
    "Limits",
    "Maker",
    "Model",
    "Opener",
    "Operator",
    "Outputs",
    "Precision",
    "Profile",
    "Progress",
    "Reader",
    "Recaller",
    "Recording",
    "Ruled",
    "Runner",
    "Target",
    "Tensor",
    "Throughput",
    "Tuner",
    "Variant",
    "View",
    "lacking",
]


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
    asks for the serialized engine, which is as large as the weights. ``several`` says that more builds follow at once,
    so that what was started for one may wait for the next.
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
    """What a backend can do here, as data: nothing above the backends asks for a name.

    Attributes:
        targets: What it compiles for, the default first.
        precisions: Those that it compiles; for a single target ``Target.refusal`` may know more.
        builds: Whether it is a ``Builder``.
        runs: Whether it is a ``Runner``, and engines can be run here.
        reads: Whether it is a ``Reader``.
        options: Whether it takes ``BuildOptions``.
        opens: Whether it is an ``Opener``.
        counts: Whether it is a ``Counter``.
        forces: Whether it is a ``Tuner``.
        explains: Whether it is an ``Explainer``.
        recalls: Whether it is a ``Recaller``: its compiler is not here, and recorded builds are.
        times: What ``profile`` times: each of the ``layers`` beside whole inferences, or ``inferences`` only.
        emulates: Whether it lacks arithmetic for some precisions that it compiles, so that a variant's values are
            those of ``Prepared.emulation`` at level ``basic``, and only its times are those of its engine.
        local: The target that runs here, where others are compiled for; None where all of ``targets`` do.
        device: The processor of ``local`` in words.
        maker: What its engines say of it.
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
        """Whether an engine of the backend is run here, and its own times and values are those to show."""
        return self.runs and not self.emulates and self.local in {None, engine.target}


class View(Protocol):
    """Something that shows a study, and is told when there is more to show."""

    def changed(self) -> None:
        """The study has other results than before; called in the thread that has them."""


@runtime_checkable
class Backend(Protocol):
    """What every backend has, whichever of the other protocols it follows."""

    name: str

    def availability(self) -> Availability:
        """Look for package and device without importing a vendor package."""

    def capabilities(self) -> Capabilities:
        """Targets and precisions, valid when available."""


@runtime_checkable
class Builder(Protocol):
    """Makes engines."""

    def build(self, request: BuildRequest, progress: Progress) -> Engine:
        """Compile.

        The engine's ``backend`` is the name of this one, its ``maker`` that of the capabilities, and it can be pickled:
        what a ``Runner`` needs of it stands in ``plan`` or ``runnable``.

        Raises:
            BuildError: the compiler refuses the model, crashes, or passes a limit.
            VariantError: the target, the precision or an option is none of its own.
            Unavailable: a package, driver or device is missing.
            Cancelled: ``progress`` asked to stop.
        """


@runtime_checkable
class Runner(Protocol):
    """Runs engines that it built itself, or opened."""

    @property
    def source(self) -> str:
        """What to write beside a number: who ran, and where that matters on what."""

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

    def unfused(
        self, engine: Engine, inputs: Batch, progress: Progress, *, limit_s: float | None = None
    ) -> tuple[str, ...]:
        """Names of the values that ``outputs`` can tell of an engine without changing what it computes.

        Errors are those of ``outputs``. The outputs of the graph need not be among them.
        """

    def release(self, engine: Engine) -> None:
        """Forget what is kept for an engine."""


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
        """Write an engine that holds a plan to a file, which ``open_plan`` reads again; raises ``RunError``."""


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
    """Times tactics while it builds, and remembers them in a cache that can be edited, so that others can be forced."""

    @property
    def flag(self) -> str:
        """What ``BuildOptions.flags`` must hold for such a cache."""

    def operators(self, log: str) -> tuple[Operator, ...]:
        """The operators whose tactics the log of a build lists."""

    def remembered(
        self, cache: str | Path, keys: Sequence[str], progress: Progress | None = None
    ) -> Mapping[str, Entry]:
        """What a cache holds, by those of ``keys`` that it has.

        Raises:
            ReadError: the file cannot be read, or is of another version or device.
            VariantError: the installed compiler cannot edit caches.
            BackendError: it crashed or passed a limit.
        """

    def forced(
        self,
        cache: str | Path,
        copy: str | Path,
        entries: Sequence[Entry],
        progress: Progress | None = None,
    ) -> Mapping[str, Entry]:
        """Write a copy of a cache with other tactics in it; errors are those of ``remembered``."""


@dataclasses.dataclass(frozen=True)
class Ruled:
    """What rules say of two nodes: whether they become one layer, and by which rule, with its source.

    ``fused`` is None where one of them has no layer. ``rule`` is empty where there is none for the two; ``text`` says
    in words what makes them one layer or keeps them apart.
    """

    fused: bool | None
    rule: str
    source: str
    text: str


@runtime_checkable
class Explainer(Protocol):
    """Knows the rules that its engines follow, so that nobody has to find them out by experiment."""

    def explain(self, model: Model, first: str, second: str) -> Ruled:
        """Whether two nodes of a model become one layer, by which rule, and if not, what hinders those that there are.

        Raises:
            BuildError: it cannot build this model.
        """


@runtime_checkable
class Recaller(Protocol):
    """Shows builds that were recorded where its compiler is, in the place of those that it cannot make here.

    Its ``build`` gives the recorded engine of a request, which says so (``Engine.recorded``), and raises
    ``Unavailable`` where there is none.
    """

    def recalled(self, model: Model) -> tuple[str, ...]:
        """The releases of the compiler whose builds of a model are here, the newest first."""


@runtime_checkable
class Reader(Protocol):
    """Reads what another machine wrote."""

    def read(self, files: Mapping[str, Path], *, select: int | None = None) -> Recording:
        """Read files by kind, such as ``layers``, ``profile`` and ``log``; none of them is written.

        ``select`` is the optimization profile to show, where the engine has several.

        Raises:
            ReadError: a file is missing, damaged or of another kind, or files belong to different engines.
        """


@runtime_checkable
class Evaluator(Builder, Runner, Protocol):
    """Computes any value of any model here: what others are compared with, and calibration observes.

    ``threads`` is the number of threads that it runs with.
    """

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
        """What returns the named values of a model, batch by batch, in the least time and memory."""


#: By the field of ``Capabilities`` that says so, the protocol that a backend follows.
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
