"""TensorRT and TensorRT-RTX: builders, and from a request to an engine around the child process that compiles.

TensorRT, from 10.3 on, builds for the GPU of this machine, and runs it. TensorRT-RTX compiles ahead of time, without a
GPU or a driver. Without a GPU an engine cannot be loaded again, so there is no inspector, no run and no time; what the
builder decided is in its verbose log, which ``readers.log.verbose`` reads.
"""

from __future__ import annotations

import dataclasses
import datetime
import difflib
import importlib.metadata
import importlib.util
import platform
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rtlab.backends import compiler_info, compilers, recorded
from rtlab.backends.readers import inspector
from rtlab.backends.readers.log import listing, verbose
from rtlab.backends.readers.log import tactics as tables
from rtlab.backends.workers import compiler, driver, process, refusals, worker_pool
from rtlab.backends.workers.compiler import BuildSpec
from rtlab.backends.workers.process import BUILDING, Bounds
from rtlab.backends.workers.running import EngineRunner
from rtlab.core import files
from rtlab.core.buildlog import Entry, Operator
from rtlab.core.engine import Engine, Layer
from rtlab.core.inputs import read_input
from rtlab.core.model import Model
from rtlab.core.onnx_file import iter_weight_chunks
from rtlab.core.optional import PACKAGES
from rtlab.core.options import BuildOptions, Shapes
from rtlab.core.phrases import quote_names
from rtlab.core.progress import Silent, check
from rtlab.core.protocols import Availability, BuildRequest, Capabilities, Limits, Progress
from rtlab.core.variant import SUPPORTED_TARGETS, Precision, Target
from rtlab.errors import BuildError, ReadError, RtlabError, RunError, Unavailable, VariantError

#: How many times its weights a builder has in memory: TensorRT-RTX 1.7.1 took 9.3 GiB for 2.96 GiB in FP16.
_WEIGHTS_IN_MEMORY = 3.2


class TensorRT(EngineRunner):
    """Builder, runner, opener and tuner for the local GPU, whose compute capability is the only target."""

    name = "tensorrt"
    binding = "tensorrt"
    product = "TensorRT"
    flag = compiler.FLAG

    def availability(self) -> Availability:
        """Look for the package without importing it, and for a GPU at the driver."""
        package = PACKAGES["tensorrt"]
        problems = []
        if not self.device:
            problems.append(
                f'{driver.explain_missing()}, or choose backend="tensorrt-rtx", which builds without a GPU'
            )
        if package.missing:
            problems.append(f"{package.missing}. Run pip install --upgrade {package.install}")
        if problems:
            return Availability(ok=False, reason="; besides, ".join(problems) + ".")
        return Availability(ok=True, version=compilers.find_package_version("tensorrt"))

    def capabilities(self) -> Capabilities:
        """One target, the local GPU; none where there is none."""
        return self._create_capabilities([self.local] if self.local else [], runs=True, forces=True)

    def build(self, request: BuildRequest, progress: Progress) -> Engine:
        """Compile in a child process; the layers are those that the engine inspector tells in a second one.

        Raises:
            Unavailable: package, driver or GPU are missing.
            VariantError: the target is not the local GPU, or an option does not exist or fit.
                BuildError: the parser or builder refuses, crashes or passes a limit.
            RunError: the plan cannot be loaded again.
            Cancelled: ``progress`` asked to stop.
        """
        availability, gpu, variant = self.availability(), self.device, request.variant
        if not availability.ok or gpu is None:
            raise Unavailable(f'Backend "{self.name}" cannot build: {availability.reason}')
        if variant.target.sm != gpu.sm:
            raise VariantError(
                f'Backend "{self.name}" cannot build for target "{variant.target}": it times kernels on the GPU that '
                f'it builds for, and here is {gpu.name}. Choose target="sm{gpu.sm}", or backend="tensorrt-rtx".'
            )
        return open_engine(
            build_plan(request, progress, self, times=True, runs=True), request, progress, self
        )

    def operators(self, log: str) -> tuple[Operator, ...]:
        """The operators of TensorRT's graph compiler that the verbose log of a build lists."""
        return tables.parse_operators(log)

    def remembered(
        self, cache: str | Path, keys: Sequence[str], progress: Progress | None = None
    ) -> Mapping[str, Entry]:
        """What a timing cache holds, by those of ``keys`` that it has; see ``Tuner``."""
        return {e.key: e for e in self._edit_cache(Path(cache), progress, tuple(keys))[0]}

    def forced(
        self, cache: str | Path, copy: str | Path, entries: Sequence[Entry], progress: Progress | None = None
    ) -> Mapping[str, Entry]:
        """Write a copy of a timing cache with other tactics in it, by the keys that the log tells; see ``Tuner``.

        An editable build with the copy takes them. Returned is what the copy remembers of these keys.
        """
        path, copy = Path(cache), Path(copy)
        if copy.resolve() == path.resolve() or (copy.exists() and path.exists() and copy.samefile(path)):
            raise VariantError(
                f'Cannot write the edited timing cache to "{copy}": it is the cache that is read. Choose another name.'
            )
        for entry in entries:
            if not 0 < entry.tactic < compiler.NOTHING:
                raise VariantError(
                    f'Cannot force tactic "{entry.tactic:#x}" in timing cache "{path}": it is no hash of 64 bits. '
                    "Choose one that the log lists, such as 0x665ded9abbf88."
                )
        keys = tuple(entry.key for entry in entries)
        edited_entries, content = self._edit_cache(path, progress, keys, tuple(entries))
        files.write(copy, content, what="the timing cache")
        return {e.key: e for e in edited_entries}

    def _edit_cache(
        self, path: Path, progress: Progress | None, keys: tuple[str, ...], entries: tuple[Entry, ...] = ()
    ) -> tuple[tuple[Entry, ...], bytes]:
        error_prefix = f'Cannot {"edit" if entries else "read"} timing cache "{path}"'
        try:
            content = read_input(path)
        except OSError as error:
            raise ReadError(
                f"{error_prefix}: {error.strerror or error}. Name a file that a build has written."
            ) from error
        edit = compiler.CacheEdit(self.binding, content, error_prefix, keys, entries)
        return process.call(
            compiler.edit_cache, edit, Bounds(error_prefix, BUILDING, Limits(), progress or Silent())
        )


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
        return Availability(ok=True, version=compilers.find_package_version("tensorrt_rtx"))

    def capabilities(self) -> Capabilities:
        """Targets of the known RTX generations; compute capability 9.0 is not among them.

        It compiles every precision that the target has: ``Target.refusal`` tells which has not.
        """
        targets = [Target(t) for t in SUPPORTED_TARGETS if t != "sm75"]
        recalls = self._uses_recordings
        # A GPU that it does not compile for, such as one of sm90, runs nothing.
        capabilities = self._create_capabilities(targets, runs=self.local in targets and not recalls)
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
        targets = self.capabilities().targets
        if variant.target not in targets:
            raise VariantError(
                f'Backend "{self.name}" cannot build for target "{variant.target}": it compiles for RTX cards only. '
                f'Choose one of {quote_names(targets)}, or backend="onnxruntime".'
            )
        gpu = self.device
        runs = gpu is not None and gpu.sm == variant.target.sm
        plan = build_plan(request, progress, self, times=False, runs=runs)
        listed_engine = self._read_listing(plan, variant.target)
        if not runs or plan.output.plan is None:
            return listed_engine
        try:
            return open_engine(plan, request, progress, self)
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

    def _read_listing(self, plan: BuiltPlan, target: Target) -> Engine:
        """The engine as the build's log lists it."""
        listing = verbose.parse(plan.log, interpret=False)
        layers, profiles = _select_first_profile(restore_origins(listing.layers, plan))
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


# --- from a request to a plan -----------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class BuiltPlan:
    """A plan with all that was told while it was built. ``names`` is the way back to the model's own names."""

    output: compiler.BuildOutput
    log: str
    names: Mapping[str, str]
    notes: tuple[str, ...]
    profiles: tuple[tuple[tuple[str, Shapes], ...], ...]


def build_plan(
    request: BuildRequest, progress: Progress, backend: EngineRunner, *, times: bool, runs: bool
) -> BuiltPlan:
    """Build in a child process, with the binding of a backend.

    ``times``: this compiler times kernels, and so can keep a timing cache. ``runs``: the engine is to run here; then
    its plan is kept, and its inner values can be read.

    Raises:
        VariantError: an option does not exist or does not fit the model.
        BuildError: the parser or builder refuses, crashes or passes a limit; ``details`` has the end of the log.
        Cancelled: ``progress`` asked to stop; ``details`` has the end of the log.
    """
    variant, options = request.variant, request.variant.options or BuildOptions()
    error_prefix = f'Backend "{backend.name}" cannot build "{variant.name}" for {variant.target}'
    profiles = tuple(
        _complete_profile(request.model, dict(profile), error_prefix) for profile in options.profiles
    )
    bounds = Bounds(error_prefix, BUILDING, request.limits, progress)
    notes = list(filter(None, [bounds.require_memory(request.model.weight_bytes, _WEIGHTS_IN_MEMORY)]))
    for note in notes:
        progress.phase(f"Preparing the build: {note}")
    with tempfile.TemporaryDirectory(prefix="rtlab-", ignore_cleanup_errors=True) as folder:
        log = Path(folder) / "log"
        file, names = _write_model(request.model, Path(folder), static=not profiles, progress=progress)
        spec = BuildSpec(
            backend.binding,
            str(file),
            variant.target.sm,
            error_prefix,
            product=backend.product,
            times=times,
            keep_plan=runs or request.keep_plan,
            debug=runs,
            tf32=variant.precision is Precision.TF32,
            sparse=bool(variant.sparsity),
            options=options,
            profiles=profiles,
            timing=_read_timing_cache(options, notes),
            log=str(log),
        )
        call = worker_pool.call if request.several else process.call
        try:
            output = call(compiler.compile_plan, spec, bounds, backend.path)
        except RtlabError as error:
            # The last lines, as many as one reads.
            tail = "\n".join(_read(log).splitlines()[-200:])
            tail = tail if spec.on_gpu else refusals.drop_driver_lines(tail)
            error.details = "\n".join(filter(None, (error.details, tail)))
            if isinstance(error, BuildError):
                error.nodes = tuple(names.get(n, n) for n in error.nodes)
                if (crash := explain_crash(error, request.model)) is not None:
                    raise crash from error
            raise
        text = _read(log)
    if file == request.model.path and request.model.origin is None:
        raise BuildError(
            f'{error_prefix}: "{file}", or a file with its weights, was written while it was compiled, so that nobody '
            "knows what the engine holds. Load the model again."
        )
    if options.timing_cache is not None and output.timing:
        try:
            files.write(options.timing_cache, output.timing, what="the timing cache")
        except RtlabError as error:
            notes.append(f"timing cache not kept: {error}")
    ranges = tuple(tuple(sorted(p.items())) for p in profiles)
    return BuiltPlan(output, text, names, (*notes, *output.notes), ranges)


def explain_crash(error: BuildError, model: Model) -> BuildError | None:
    """A crash with the nodes that TensorRT-RTX 1.7.1 crashes on; None where there are none, or it is no crash.

    These are Attention whose query, key and value are one value: in FP32 and FP16, also behind Identity.
    """
    if "crashed with SIG" not in str(error):
        return None
    nodes = [
        n
        for n in model.top
        if n.op == "Attention" and len({_skip_identities(model, v) for v in n.inputs[:3]}) == 1
    ]
    if not nodes:
        return None
    names = quote_names(n.title for n in nodes)
    cause = f"Attention whose query, key and value are one value makes it crash: {names}."
    return BuildError(f"{error} {cause}", details=error.details, nodes=[n.id for n in nodes])


def _skip_identities(model: Model, value: str) -> str:
    while (maker := model.producers.get(value)) is not None and maker.op == "Identity":
        value = maker.inputs[0]
    return value


def _write_model(
    model: Model, folder: Path, *, static: bool, progress: Progress
) -> tuple[Path, Mapping[str, str]]:
    """The file that the builder reads: the model's own where that will do, for to write a large one takes seconds.

    Weights go to a file beside it, as they lie in memory; the builder maps it, and parses a small file.
    """
    model_file = model.file
    graph_names = {n for node in model.nodes for n in (node.id, *node.inputs, *node.outputs) if n}
    if model_file is not None and all(map(compiler.is_plain, graph_names)):
        return model_file, {}
    proto, weights = model.outline(static=static)
    with (folder / "weights").open("wb") as file:
        for chunk in iter_weight_chunks(proto, weights, "weights"):
            check(progress, "preparing the model")
            file.write(chunk)
    names = compiler.sanitize(proto)
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path, names


def open_engine(plan: BuiltPlan, request: BuildRequest, progress: Progress, backend: EngineRunner) -> Engine:
    """The engine as its inspector tells it, with the model's own names and what only the build knows.

    Raises:
        ReadError, RunError, Unavailable: the plan cannot be loaded here.
        Cancelled: ``progress`` asked to stop.
    """
    error_prefix = f'Backend "{backend.name}" cannot load "{request.variant.name}"'
    plan_bytes = plan.output.plan or b""
    facts = backend.describe(plan_bytes, progress, error_prefix=error_prefix)
    engine = backend.engine(plan_bytes, facts, error_prefix=error_prefix)
    log_totals = {k: int(m[-1]) for k, rule in listing.TOTALS.items() if (m := rule.findall(plan.log))}
    return dataclasses.replace(
        engine,
        layers=restore_origins(engine.layers, plan),
        totals={**log_totals, **engine.totals},
        log=plan.log,
        seconds=plan.output.seconds,
        built=datetime.datetime.now(datetime.timezone.utc),
        notes=(*plan.notes, *engine.notes),
        plan=plan.output.plan,
        profiles=plan.profiles,
    )


def restore_origins(layers: Iterable[Layer], plan: BuiltPlan) -> tuple[Layer, ...]:
    """Layers with the ids of the model's nodes, where the builder was given other names."""
    return tuple(
        dataclasses.replace(layer, origins=tuple(dict.fromkeys(plan.names.get(o, o) for o in layer.origins)))
        for layer in layers
    )


def _complete_profile(model: Model, ranges: dict[str, Shapes], error_prefix: str) -> Mapping[str, Shapes]:
    """A profile with every dynamic input; those that were not given have the one shape of ``input_shape``."""
    for name in ranges:
        if name not in model.inputs:
            close = difflib.get_close_matches(name, model.inputs, n=1)
            hint = f'Did you mean "{close[0]}"? ' if close else ""
            input_names = quote_names(model.inputs)
            raise VariantError(
                f'{error_prefix}: an optimization profile names input "{name}", and the model has none of this name. '
                f"{hint}Its inputs: {input_names}."
            )
    for name in model.inputs:
        declared_shape = model.values[name].shape or ()
        if name not in ranges and not all(isinstance(d, int) for d in declared_shape):
            fixed_shape = model.input_shape(name)
            ranges[name] = (fixed_shape, fixed_shape, fixed_shape)
    return ranges


def _read_timing_cache(options: BuildOptions, notes: list[str]) -> bytes | None:
    """The timing cache of earlier builds: empty where there is none yet, None where none is wanted."""
    if options.timing_cache is None:
        return None
    try:
        return read_input(options.timing_cache)
    except FileNotFoundError:
        return b""
    except OSError as error:
        notes.append(f'timing cache "{options.timing_cache}" not read: {error.strerror or error}')
        return b""


def _read(log: Path) -> str:
    try:
        return log.read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""
