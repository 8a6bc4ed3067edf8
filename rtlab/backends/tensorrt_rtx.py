"""TensorRT-RTX: compiles ahead of time, with no GPU and no driver.

Without a GPU an engine cannot be loaded again, so there is no inspector, no run and no time. What the builder
decided is told by its verbose log, which ``readers.log.verbose`` reads. With one, the inspector tells it, and the
engine runs.
"""

from __future__ import annotations

import dataclasses
import datetime
import importlib.util
import platform
import re

from rtlab.backends import compiler_info, compilers, recorded
from rtlab.backends.readers import inspector
from rtlab.backends.readers.log import verbose
from rtlab.backends.workers import builder
from rtlab.backends.workers.running import EngineRunner
from rtlab.core.engine import Engine, Layer
from rtlab.core.model import Model
from rtlab.core.phrases import quote_names
from rtlab.core.protocols import Availability, BuildRequest, Capabilities, Progress
from rtlab.core.variant import SUPPORTED_TARGETS, Target
from rtlab.errors import ReadError, RunError, Unavailable, VariantError


class TensorRTRTX(EngineRunner):
    """Builder for RTX cards, and runner where one is; the target defaults to sm86 where a variant asks for none.

    Args:
        release: An added compiler, which builds in place of the environment's own.
    """

    name = compilers.BACKEND
    binding = "tensorrt_rtx"
    product = "TensorRT-RTX"
    maker = compiler_info.TENSORRT_RTX

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
                return Availability(ok=False, reason=_explain_missing(f"tensorrt-rtx=={release.version}"))
            if release.path is None or release.path.is_dir():
                return Availability(ok=True, version=release.version)
            reason = (
                f'compiler "{release.version}" was removed. Run rtlab compilers add {release.version}, or choose '
                "another."
            )
            return Availability(ok=False, reason=reason)
        if importlib.util.find_spec("tensorrt_rtx") is None:
            return Availability(ok=False, reason=_explain_missing("tensorrt-rtx"))
        return Availability(ok=True, version=builder.find_package_version("tensorrt_rtx"))

    def capabilities(self) -> Capabilities:
        """Targets of the known RTX generations; compute capability 9.0 is not among them.

        It compiles every precision that the target has: ``Target.refusal`` tells which has not.
        """
        targets = [Target(t) for t in SUPPORTED_TARGETS if t != "sm75"]
        recalls = self._uses_recordings
        capabilities = self._create_capabilities(targets, runs=self.device is not None and not recalls)
        return dataclasses.replace(capabilities, recalls=recalls)

    @property
    def _uses_recordings(self) -> bool:
        """Whether recorded builds are all that there is of this compiler."""
        if self._release is not None:
            return self._release.recorded
        return importlib.util.find_spec("tensorrt_rtx") is None and bool(recorded.releases())

    def recalled(self, model: Model) -> tuple[str, ...]:
        """The releases whose builds of a model are here, the newest first; of a release itself alone."""
        version = None if self._release is None else self._release.version
        return tuple(r for r in recorded.releases(model) if version in {None, r})

    def build(self, request: BuildRequest, progress: Progress) -> Engine:
        """Compile in a child process and read the layers from its log; where the package is missing, recall a build.

        Raises:
            Unavailable: the package is missing, and nobody recorded this build.
            VariantError: the target is not a compute capability, or an option does not exist or fit.
            BuildError: the parser or builder refuses, crashes or passes a limit.
            Cancelled: ``progress`` asked to stop.
        """
        availability, variant = self.availability(), request.variant
        if self._uses_recordings:
            return self._find_recorded(request)
        if not availability.ok:
            raise Unavailable(f'Backend "{self.name}" cannot build: {availability.reason}')
        if variant.target.sm is None:
            raise VariantError(
                f'Backend "{self.name}" cannot build for target "{variant.target}": it compiles for RTX cards. '
                'Choose target="sm86", "sm89" or "sm120", or backend="onnxruntime".'
            )
        if variant.target not in self.capabilities().targets:
            target_names = quote_names(self.capabilities().targets)
            raise VariantError(
                f'Backend "{self.name}" cannot build for target "{variant.target}": it does not know this compute '
                f"capability. Choose one of {target_names}."
            )
        gpu = self.device
        runs = gpu is not None and gpu.sm == variant.target.sm
        plan = builder.build(request, progress, self, version=availability.version, times=False, runs=runs)
        listed_engine = self._read_listing(plan, variant.target)
        if not runs or plan.output.plan is None:
            return listed_engine
        try:
            return builder.open_engine(plan, request, progress, self)
        except (ReadError, RunError, Unavailable) as error:
            # What was compiled is worth showing even where it cannot be loaded.
            return dataclasses.replace(listed_engine, notes=(*listed_engine.notes, f"not loaded: {error}"))

    def _find_recorded(self, request: BuildRequest) -> Engine:
        """The recorded engine of a request.

        Raises:
            Unavailable: nobody recorded it.
            BuildError: the compiler refused it when it was recorded.
        """
        releases = recorded.releases() if self._release is None else (self._release.version,)
        engine = recorded.find(request, releases[0])
        if engine is None:
            variant = request.variant
            raise Unavailable(
                f'Backend "{self.name}" cannot build "{variant.name}" of "{request.model.name}" for {variant.target}: '
                f"this build is none of those recorded with {self.product} {releases[0]} that rtlab includes, and "
                f"{self.availability().reason}"
            )
        return dataclasses.replace(engine, backend=self.name)

    def _read_listing(self, plan: builder.BuiltPlan, target: Target) -> Engine:
        """The engine as the build's log lists it."""
        listing = verbose.parse(plan.log)
        layers, profiles = _select_first_profile(builder.restore_origins(listing.layers, plan))
        notes = [f"{listing.unread} listing lines were not understood"] if listing.unread else []
        if profiles > 1:
            notes.append(
                f"the engine has {profiles} optimization profiles; the layers of profile 0 are shown"
            )
        return Engine(
            backend=self.name,
            version=plan.output.version,
            target=target,
            layers=layers,
            inputs=listing.inputs,
            outputs=listing.outputs,
            totals=listing.log.totals,
            log=plan.log,
            seconds=plan.output.seconds,
            built=datetime.datetime.now(datetime.timezone.utc),
            notes=(*plan.notes, *notes),
            plan=plan.output.plan,
            profiles=plan.profiles,
            maker=self.maker,
        )


def _explain_missing(package: str) -> str:
    """That a package is not here, and what to do."""
    wheels = "wheels exist for x86-64 Linux and Windows only"
    platform_text = f"{platform.system()} {platform.machine()}"
    return (
        f'package "{package}" is not installed ({wheels}; this is {platform_text}). Run pip install {package} there, '
        'or choose backend="onnxruntime", or open a recording: rtlab inspect MODEL --save build.json where it is '
        "installed, rtlab read build.json here."
    )


def _select_first_profile(layers: tuple[Layer, ...]) -> tuple[tuple[Layer, ...], int]:
    """The layers of profile 0, and how many profiles there are.

    Each profile is compiled to programs of its own. Not every layer of a program bears the profile's number, and a
    program with none belongs to profile 0.
    """
    owners: dict[str, int] = {}
    for layer in layers:
        names = (layer.name, *(t.name for t in (*layer.inputs, *layer.outputs)))
        profile_number = max(inspector.split_profile(name)[1] or 0 for name in names)
        program = _parse_program(layer)
        owners[program] = max(owners.get(program, 0), profile_number)
    return tuple(layer for layer in layers if owners[_parse_program(layer)] == 0), len({0, *owners.values()})


def _parse_program(layer: Layer) -> str:
    """The number of a layer's program: 1 in ``__myl_FcAdd_myl1_6``."""
    match = re.search(r"_myl(\d+)_\d+$", layer.name)
    return match[1] if match else ""
