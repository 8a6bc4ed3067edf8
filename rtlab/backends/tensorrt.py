"""TensorRT, from 10.3 on, for the GPU of this machine: builds, tells what it built, and runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rtlab.backends.readers.log import tactics as tables
from rtlab.backends.workers import builder, driver, process, timing_cache
from rtlab.backends.workers.running import EngineRunner
from rtlab.core import files
from rtlab.core.buildlog import Entry, Operator
from rtlab.core.engine import Engine
from rtlab.core.inputs import read_input
from rtlab.core.optional import PACKAGES
from rtlab.core.progress import Silent
from rtlab.core.protocols import Availability, BuildRequest, Capabilities, Limits, Progress
from rtlab.errors import ReadError, Unavailable, VariantError


class TensorRT(EngineRunner):
    """Builder, runner, opener and tuner for the local GPU, whose compute capability is the only target."""

    name = "tensorrt"
    binding = "tensorrt"
    product = "TensorRT"
    flag = timing_cache.FLAG

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
        return Availability(ok=True, version=builder.find_package_version("tensorrt"))

    def capabilities(self) -> Capabilities:
        """One target, the local GPU; none where there is none."""
        return self._create_capabilities([self.local] if self.local else [], runs=True, forces=True)

    def build(self, request: BuildRequest, progress: Progress) -> Engine:
        """Compile in a child process; the layers are those that the engine inspector tells in a second one.

        Raises:
            Unavailable: package, driver or GPU are missing.
            VariantError: the target is not the local GPU, or an option does not exist or fit.
            CalibrationError: implicit INT8 has neither samples nor a cache that fit.
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
        plan = builder.build(request, progress, self, version=availability.version, times=True, runs=True)
        return builder.open_engine(plan, request, progress, self)

    def operators(self, log: str) -> tuple[Operator, ...]:
        """The operators of TensorRT's graph compiler that the verbose log of a build lists."""
        return tables.parse_operators(log)

    def remembered(
        self, cache: str | Path, keys: Sequence[str], progress: Progress | None = None
    ) -> Mapping[str, Entry]:
        """What a timing cache holds, by those of ``keys`` that it has; see ``Tuner``."""
        return {e.key: e for e in self._edit_cache(Path(cache), progress, tuple(keys))[0]}

    def forced(
        self,
        cache: str | Path,
        copy: str | Path,
        entries: Sequence[Entry],
        progress: Progress | None = None,
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
            if not 0 < entry.tactic < timing_cache.NOTHING:
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
        return process.call(
            timing_cache.edit,
            timing_cache.CacheEdit(self.binding, content, error_prefix, keys, entries),
            limits=Limits(),
            progress=progress or Silent(),
            error_prefix=error_prefix,
        )
