"""TensorRT-RTX: compiles ahead of time, with no GPU and no driver.

Without a GPU an engine cannot be loaded again, so there is no inspector, no run and no time. What the builder
decided is told by its verbose log, which ``log.verbose`` reads. With one, the inspector tells it, and the engine runs.
"""

from __future__ import annotations

import dataclasses
import datetime
import importlib.util
import platform
import re

from rtlab.backends import compilers, makers, recorded
from rtlab.backends.files import inspector
from rtlab.backends.live import building
from rtlab.backends.live.running import EngineRunner
from rtlab.backends.log import verbose
from rtlab.core.engine import Engine, Layer
from rtlab.core.model import Model
from rtlab.core.phrases import quoted
from rtlab.core.protocols import Availability, BuildRequest, Capabilities, Progress
from rtlab.core.variant import KNOWN_TARGETS, Target
from rtlab.errors import ReadError, RunError, Unavailable, VariantError


class TensorRTRTX(EngineRunner):
    """Builder for RTX cards, and runner where one is; the target defaults to sm86 where a variant asks for none.

    Args:
        release: An added compiler, which builds in place of the environment's own.
    """

    name = compilers.BACKEND
    binding = "tensorrt_rtx"
    product = "TensorRT-RTX"
    maker = makers.TENSORRT_RTX

    def __init__(self, release: compilers.Compiler | None = None) -> None:
        super().__init__()
        self._release = release
        if release is not None and release.path is not None:
            self.binding, self.path = compilers.BINDING, (str(release.path),)
        if release is not None and not release.own:
            self.name = release.backend

    def availability(self) -> Availability:
        """Look for the package without importing it."""
        if self._release is not None:
            release = self._release
            if release.recorded:
                return Availability(ok=False, reason=_missing(f"tensorrt-rtx=={release.version}"))
            gone = release.path is not None and not release.path.is_dir()
            reason = (
                f'compiler "{release.version}" was removed. Run rtlab compilers add {release.version}, or choose '
                "another."
            )
            return (
                Availability(ok=False, reason=reason)
                if gone
                else Availability(ok=True, version=release.version)
            )
        if importlib.util.find_spec("tensorrt_rtx") is None:
            return Availability(ok=False, reason=_missing("tensorrt-rtx"))
        return Availability(ok=True, version=building.installed("tensorrt_rtx"))

    def capabilities(self) -> Capabilities:
        """Targets of the known RTX generations; compute capability 9.0 is not among them.

        It compiles every precision that the target has: ``Target.refusal`` tells which has not.
        """
        targets = [Target(t) for t in KNOWN_TARGETS if t != "sm75"]
        able = self._able(targets, runs=self.device is not None)
        return dataclasses.replace(able, runs=False, recalls=True) if self._recalling else able

    @property
    def _recalling(self) -> bool:
        """Whether recorded builds are all that there is of this compiler."""
        if self._release is not None:
            return self._release.recorded
        return importlib.util.find_spec("tensorrt_rtx") is None and bool(recorded.releases())

    def recalled(self, model: Model) -> tuple[str, ...]:
        """The releases whose builds of a model are here, the newest first; of a release itself alone."""
        mine = None if self._release is None else self._release.version
        return tuple(r for r in recorded.releases(model) if mine in {None, r})

    def build(self, request: BuildRequest, progress: Progress) -> Engine:
        """Compile in a child process and read the layers from its log; where the package is missing, recall a build.

        Raises:
            Unavailable: the package is missing, and nobody recorded this build.
            VariantError: the target is not a compute capability, or an option does not exist or fit.
            BuildError: the parser or builder refuses, crashes or passes a limit.
            Cancelled: ``progress`` asked to stop.
        """
        here = self.availability()
        variant = request.variant
        if self._recalling:
            return self._recall(request)
        if not here.ok:
            raise Unavailable(f'Backend "{self.name}" cannot build: {here.reason}')
        if variant.target.sm is None:
            raise VariantError(
                f'Backend "{self.name}" cannot build for target "{variant.target}": it compiles for RTX cards. '
                'Choose target="sm86", "sm89" or "sm120", or backend="onnxruntime".'
            )
        if variant.target not in self.capabilities().targets:
            known = quoted(self.capabilities().targets)
            raise VariantError(
                f'Backend "{self.name}" cannot build for target "{variant.target}": it does not know this compute '
                f"capability. Choose one of {known}."
            )
        gpu = self.device
        runs = gpu is not None and gpu.sm == variant.target.sm
        plan = building.build(request, progress, self, version=here.version, times=False, runs=runs)
        listed = self._listed(plan, variant.target)
        if not runs or plan.built.plan is None:
            return listed
        try:
            return building.opened(plan, request, progress, self)
        except (ReadError, RunError, Unavailable) as error:
            # What was compiled is worth showing even where it cannot be loaded.
            return dataclasses.replace(listed, notes=(*listed.notes, f"not loaded: {error}"))

    def _recall(self, request: BuildRequest) -> Engine:
        """The recorded engine of a request.

        Raises:
            Unavailable: nobody recorded it.
            BuildError: the compiler refused it when it was recorded.
        """
        releases = recorded.releases() if self._release is None else (self._release.version,)
        found = recorded.find(request, releases[0])
        if found is None:
            variant = request.variant
            raise Unavailable(
                f'Backend "{self.name}" cannot build "{variant.name}" of "{request.model.name}" for {variant.target}: '
                f"this build is none of those recorded with {self.product} {releases[0]} that rtlab brings along, and "
                f"{self.availability().reason}"
            )
        return dataclasses.replace(found, backend=self.name)

    def _listed(self, plan: building.BuiltPlan, target: Target) -> Engine:
        """The engine as the build's log lists it."""
        told = verbose.parse(plan.log)
        layers, profiles = _first_profile(building.named(told.layers, plan))
        notes = [f"{told.unread} listing lines were not understood"] if told.unread else []
        if profiles > 1:
            notes.append(
                f"the engine has {profiles} optimization profiles; the layers of profile 0 are shown"
            )
        return Engine(
            backend=self.name,
            version=plan.built.version,
            target=target,
            layers=layers,
            inputs=told.inputs,
            outputs=told.outputs,
            totals=told.log.totals,
            log=plan.log,
            seconds=plan.built.seconds,
            built=datetime.datetime.now(datetime.timezone.utc),
            notes=(*plan.notes, *notes),
            plan=plan.built.plan,
            profiles=plan.profiles,
            maker=self.maker,
        )


def _missing(package: str) -> str:
    """That a package is not here, and what to do."""
    wheels = "wheels exist for x86-64 Linux and Windows only"
    here = f"{platform.system()} {platform.machine()}"
    return (
        f'package "{package}" is not installed ({wheels}; this is {here}). Run pip install {package} there, or '
        'choose backend="onnxruntime", or open a recording: rtlab inspect MODEL --save build.json where it is '
        "installed, rtlab read build.json here."
    )


def _first_profile(layers: tuple[Layer, ...]) -> tuple[tuple[Layer, ...], int]:
    """The layers of profile 0, and how many profiles there are.

    Each profile is compiled to programs of its own. Not every layer of a program bears the profile's number, and a
    program with none belongs to profile 0.
    """
    owners: dict[str, int] = {}
    for layer in layers:
        names = (layer.name, *(t.name for t in (*layer.inputs, *layer.outputs)))
        told = max(inspector.bare(name)[1] or 0 for name in names)
        program = _program(layer)
        owners[program] = max(owners.get(program, 0), told)
    return tuple(layer for layer in layers if owners[_program(layer)] == 0), len({0, *owners.values()})


def _program(layer: Layer) -> str:
    """The number of a layer's program: 1 in ``__myl_FcAdd_myl1_6``."""
    found = re.search(r"_myl(\d+)_\d+$", layer.name)
    return found[1] if found else ""
