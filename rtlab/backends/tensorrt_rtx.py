"""TensorRT-RTX: compiles ahead of time, with no GPU and no driver.

Without a GPU an engine cannot be loaded again, so there is no inspector, no run and no time. What the builder
decided is told by its verbose log, which ``_buildlog`` reads.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import importlib.util
import platform

from rtlab.backends import _buildlog, _child, _trt
from rtlab.core.engine import Engine
from rtlab.core.protocols import Availability, BuildRequest, Capabilities, Progress
from rtlab.core.variant import KNOWN_TARGETS, Precision, Target
from rtlab.errors import Unavailable, VariantError


class TensorRTRTX:
    """Builder for RTX cards; the target defaults to sm86 where a variant asks for none."""

    name = "tensorrt-rtx"

    def availability(self) -> Availability:
        """Look for the package without importing it."""
        if importlib.util.find_spec("tensorrt_rtx") is None:
            wheels = "wheels exist for x86-64 Linux and Windows only"
            here = f"{platform.system()} {platform.machine()}"
            return Availability(
                ok=False,
                reason=f'package "tensorrt-rtx" is not installed ({wheels}; this is {here}). '
                'Run pip install tensorrt-rtx there, or choose backend="onnxruntime".',
            )
        # The module belongs to one of several packages, by CUDA release.
        owners = importlib.metadata.packages_distributions().get("tensorrt_rtx", [])
        return Availability(ok=True, version=importlib.metadata.version(owners[0]) if owners else "")

    def capabilities(self) -> Capabilities:
        """Targets of the known RTX generations; compute capability 9.0 is not among them.

        It compiles every precision that the target has: ``Target.refusal`` tells which has not.
        """
        return Capabilities(
            targets=tuple(Target(t) for t in KNOWN_TARGETS if t != "sm75"),
            precisions=tuple(Precision),
            builds=True,
        )

    def build(self, request: BuildRequest, progress: Progress) -> Engine:
        """Compile in a child process and read the layers from its log.

        Raises:
            Unavailable: the package is missing.
            VariantError: the target is not a compute capability.
            BuildError: the parser or builder refuses, crashes or passes a limit.
            Cancelled: ``progress`` asked to stop.
        """
        here = self.availability()
        if not here.ok:
            raise Unavailable(f'Backend "{self.name}" cannot build: {here.reason}')
        variant = request.variant
        if variant.target.sm is None:
            raise VariantError(
                f'Backend "{self.name}" cannot build for target "{variant.target}": it compiles for RTX cards. '
                'Choose target="sm86", "sm89" or "sm120", or backend="onnxruntime".'
            )
        if variant.target not in self.capabilities().targets:
            known = ", ".join(f'"{t}"' for t in self.capabilities().targets)
            raise VariantError(
                f'Backend "{self.name}" cannot build for target "{variant.target}": it does not know this compute '
                f"capability. Choose one of {known}."
            )
        doing = f'Backend "{self.name}" cannot build "{variant.name}" for {variant.target}'
        proto = request.model.proto(static=True)
        labels = _trt.sanitize(proto)
        order = _trt.Order(
            "tensorrt_rtx",
            proto.SerializeToString(),
            variant.target.sm,
            doing,
            keep_plan=request.keep_plan,
            tf32=variant.precision is Precision.TF32,
            sparse=bool(variant.sparsity),
        )
        del proto
        built: _trt.Built = _child.call(
            "rtlab.backends._trt:compile_plan", order, limits=request.limits, progress=progress, doing=doing
        )
        listing = _buildlog.parse(built.log, labels)
        unread = f"{len(listing.unread)} listing lines were not understood" if listing.unread else ""
        return Engine(
            backend=self.name,
            version=built.version,
            target=variant.target,
            layers=listing.layers,
            inputs=listing.inputs,
            outputs=listing.outputs,
            totals=listing.totals,
            log=built.log,
            seconds=built.seconds,
            built=datetime.datetime.now(datetime.timezone.utc),
            notes=(unread,) if unread else (),
            plan=built.plan,
        )
