"""What a study has of its variants: what was planned, what is known of each, why one failed."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from rtlab import backends
from rtlab.analyses.batches.sweeps import Sweep
from rtlab.analyses.variants.variations import variations
from rtlab.backends.selection import builder_for, check_capable, default_target
from rtlab.core.facts import VariantResult
from rtlab.core.model import Model, load
from rtlab.core.options import BuildOptions
from rtlab.core.peaks import Peaks
from rtlab.core.protocols import Backend, Limits, View
from rtlab.core.ptq_transform import PtqTransform
from rtlab.core.scale import Scale
from rtlab.core.task import Task
from rtlab.core.variant import Calibrator, Precision, Rewrite, Target, Variant
from rtlab.errors import (
    RtlabError,
    VariantError,
)
from rtlab.experiments.tactics import LayerTactics
from rtlab.formulations.trial import TunedModel
from rtlab.quantize import existing_qdq
from rtlab.study.planning import Scales, resolve
from rtlab.study.state import StudyState

if TYPE_CHECKING:
    import onnx


R = TypeVar("R")


class Variants(Generic[R]):
    """The variants of one model, and those who look at them. ``R`` is how it hands out what is known of one."""

    #: Makes of facts what is handed out of a variant.
    _handle: Callable[[VariantResult], R]

    def __init__(
        self,
        model: Model | str | Path | bytes | onnx.ModelProto,
        *,
        task: Task | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.model = model if isinstance(model, Model) else load(model)
        if task is not None:
            task.data.check(self.model)
        self.task = task
        self.limits = limits or Limits()
        self._state = StudyState()
        self._lock = threading.Lock()
        #: Views that hear of new results, in the thread that has them; one that is gone drops out.
        self.views: weakref.WeakSet[View] = weakref.WeakSet()
        #: What ``tune`` found last; None before.
        self.tuned: TunedModel | None = None
        #: Processors to judge engines by, beside those of the table: measured here, or added by the user.
        self.processors: list[Peaks] = []

    @property
    def variants(self) -> Mapping[str, Variant]:
        """What was planned, by name, at this moment: what changes the study later does not change this mapping."""
        return self._state.variants

    @property
    def facts(self) -> Mapping[str, VariantResult]:
        """What is known of those that were built or read, by name, at this moment."""
        return self._state.facts

    @property
    def failures(self) -> Mapping[str, RtlabError]:
        """Why variants could not be built, by name, at this moment."""
        return self._state.failures

    @property
    def sweeps(self) -> Mapping[str, Sweep]:
        """What was timed at several batch sizes, by variant, at this moment."""
        return self._state.sweeps

    @property
    def listed(self) -> Mapping[str, tuple[LayerTactics, ...]]:
        """The tactics that ``tactics`` listed last, by variant, at this moment."""
        return self._state.tactics

    def facts_of(self, name: str) -> VariantResult:
        """What is known of a variant.

        Raises:
            VariantError: it is not built; or what it failed with.
        """
        # A list has no hash to look for.
        is_name, state = isinstance(name, str), self._state
        if is_name and name in state.facts:
            return state.facts[name]
        if is_name and name in state.failures:
            raise state.failures[name]
        planned_names = ", ".join(f'"{n}"' for n in state.variants) or "none yet"
        hint = (
            "Run study.run()."
            if is_name and name in state.variants
            else f"Add it with study.add; there is {planned_names}."
        )
        raise VariantError(f'Cannot show variant "{name}": it is not built. {hint}')

    def add(
        self,
        name: str,
        *,
        precision: str | Precision | Mapping[str, str | Precision] | None = None,
        calibrator: str | Calibrator | None = None,
        target: str | Target | None = None,
        backend: str | Backend | None = None,
        weights: str = "channel",
        sparsity: bool | str | Sequence[str] = False,
        scales: Scales = None,
        options: BuildOptions | Mapping[str, Any] | None = None,
        rewrites: Sequence[str | Rewrite] = (),
        calibrators: Mapping[str, str | Calibrator] | None = None,
        treatments: str | PtqTransform | Sequence[str | PtqTransform] = (),
        compiler: str | None = None,
    ) -> Variant:
        """Plan a variant; nothing is built yet.

        Args:
            name: What the variant is called; one of this name is replaced.
            precision: A precision, or patterns with theirs: ``{"*": "int8", "/head/*": "fp16"}`` (an id or a name
                with ``*``, or ``op:Conv``; the last that fits counts). Defaults to ``name`` when that is a
                precision, otherwise to fp32.
            calibrator: How activations get their scales, such as ``percentile(99.9)``; auto for int8, minmax
                for fp8 by default.
            target: ``cpu`` or a compute capability; None takes the builder's default.
            backend: The builder by its name, or one of your own: any object that follows ``rtlab.core.protocols``.
                None takes the best one available.
            weights: One scale per output ``channel``, or per ``tensor``.
            sparsity: Prune weights to 2:4, all that can be (True) or those of the nodes that a pattern fits, and
                tell the compiler to look for sparse weights.
            scales: In place of a calibrator: a TensorRT calibration cache or its path, or amax by value.
            options: What a TensorRT builder is told beyond the model, by TensorRT's own names, as
                ``rtlab.BuildOptions.of`` takes them: ``{"builder_optimization_level": 5}``.
            rewrites: Nodes in another form that computes the same, such as ``"fold /stem/norm/BatchNormalization"``:
                what ``why`` offers as a remedy.
            calibrators: Single values with a calibrator of their own, by patterns of their names, or of the nodes that
                read them: ``{"/layer1/*": "percentile(99.99)"}``; the last that fits counts.
            treatments: What is done so that rounding costs less accuracy, to all nodes that it suits or those of a
                pattern behind a space: ``equalize`` and ``smooth(0.5)`` even out channels, ``reconstruct`` rounds
                weights so that outputs stay, ``correct`` puts mean errors into biases.
            compiler: A release of the compiler that is kept here, such as ``1.5``: see ``rtlab.compilers``.

        Raises:
            VariantError: the combination cannot exist.
            Unavailable: the backend, or the release, is not installed.
            ReadError: the cache is damaged.
        """
        check_variant_name(name)
        builder = builder_for(backend, target, compiler, self.model)
        variant_and_scales = resolve(
            self.model,
            name,
            precision,
            calibrator=calibrator,
            target=target if target is not None else default_target(builder),
            backend=builder,
            weights=weights,
            sparsity=sparsity,
            scales=scales,
            options=BuildOptions.of(**options) if isinstance(options, Mapping) else options,
            rewrites=rewrites,
            calibrators=calibrators,
            treatments=treatments,
        )
        check_capable(builder, variant_and_scales[0])
        return self._plan(name, *variant_and_scales)

    def vary(self, name: str, what: str) -> tuple[str, ...]:
        """Plan the variants that differ from one in a single choice; returns their names, for ``run``.

        Args:
            name: A variant.
            what: ``targets``, ``streams``, ``levels``, ``tf32``, ``sparsity``, ``compilers`` (each other release that
                is here: see ``rtlab.compilers``) or ``pairs`` (the model without its own Q/DQ, in FP32); or an option
                of TensorRT's builder with its value, such as ``max_aux_streams=2`` or ``build_route=...``.

        Raises:
            VariantError: there is no such choice, or nothing of it would differ.
            Unavailable: the builder is not installed.
        """
        variant = self._require_variant(name, "vary")
        builder = variant.backend or builder_for(None, variant.target, model=self.model)
        choices = variations(
            name,
            variant,
            what,
            backends.get(builder).capabilities().targets,
            existing_qdq.find_quantized_nodes(self.model),
        )
        for title, choice in choices.items():
            if title not in self.variants:
                self.add(title, **choice)
        return tuple(choices)

    def remove(self, name: str) -> None:
        """Forget a variant and its results."""
        check_variant_name(name)
        self._update_state(lambda state: state.without_variant(name))
        self._notify_views()

    def _require_variant(self, name: str, what: str) -> Variant:
        variant = self.variants.get(name) if isinstance(name, str) else None
        if variant is None:
            raise VariantError(
                f'Cannot {what} variant "{name}": there is none of this name. Add it with study.add.'
            )
        return variant

    def _plan(
        self, name: str, variant: Variant, explicit_scales: Mapping[str, Scale] | None, *, build: bool = True
    ) -> Variant:
        self._update_state(lambda state: state.with_variant(name, variant, explicit_scales, build=build))
        return variant

    def _update_state(self, update: Callable[[StudyState], StudyState]) -> None:
        """Put what is kept into the place of what was, in one step."""
        with self._lock:
            self._state = update(self._state)

    def _notify_views(self) -> None:
        for view in tuple(self.views):
            view.changed()


def check_variant_name(name: object) -> None:
    """Raise ``VariantError`` where what a variant is to be called is no name."""
    if not isinstance(name, str):
        raise VariantError(f'Cannot call a variant "{name}": it is no name. Choose a name such as "int8".')
