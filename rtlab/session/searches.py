"""What a study finds out by building and running many times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rtlab.backends.bench import OrtBench
from rtlab.core.peaks import Peaks
from rtlab.core.protocols import Progress
from rtlab.core.variant import Variant
from rtlab.errors import (
    boundary,
)
from rtlab.experiments.forcing import LayerTactics, copy_path
from rtlab.experiments.forcing import force as forced
from rtlab.experiments.forcing import tactics as timed_tactics
from rtlab.experiments.peaks import measured_peaks
from rtlab.experiments.sweep import BATCHES, sweep
from rtlab.experiments.tuning import tune
from rtlab.formulations.recurrent import Timed, recurrent, timed
from rtlab.formulations.trial import Tuned
from rtlab.questions.batches.sweeps import Sweep
from rtlab.session.observations import Observations
from rtlab.session.watching import watching

R = TypeVar("R")


class Searches(Observations[R]):
    """The experiments of a study."""

    @boundary("time the batch sizes")
    def sweep(
        self, name: str, batches: Sequence[int] = BATCHES, *, progress: Progress | None = None
    ) -> Sweep:
        """Time a variant at several batch sizes, on what ran it here. What was timed before a cancel is kept.

        Raises:
            VariantError: the variant is not built, did not run here, or has a fixed batch.
            RunError: not even the first batch can be run.
            Cancelled: the work was stopped.
        """
        result = self.facts_of(name)
        with watching(progress) as watched:
            for found in sweep(result, self.data, batches, watched):
                self._change(lambda kept, found=found: kept.swept(name, found))  # type: ignore[misc]
        self._changed()
        return found

    @boundary("tune the model")
    def tune(
        self,
        *,
        budget_s: float = 60.0,
        cache: str | Path | None = None,
        progress: Progress | None = None,
        **more: Any,
    ) -> Tuned:
        """Tune the model's convolutions and products on this CPU: see ``rtlab.experiments.tuning.tune``.

        Stopped before the end, it gives what was tuned until then.

        Args:
            budget_s: Seconds that it may take, approximately.
            cache: A file of times that were measured on this device before; written anew in the end.
            progress: Where to report; the host's reporter by default.
            more: ``candidates`` and ``threads``, as ``tune`` takes them.

        Raises:
            ModelError: no layer can be tuned.
            VariantError: a choice cannot be.
            ReadError: the cache is of another device.
            Cancelled: stopped before the first layer was tuned.
        """
        batch = next(self.data.batches(self.model, 1))
        with watching(progress) as watched:
            self.tuned = tune(self.model, batch, progress=watched, budget_s=budget_s, cache=cache, **more)
        self._changed()
        return self.tuned

    def tactics(self, name: str, *, progress: Progress | None = None) -> tuple[LayerTactics, ...]:
        """What the builder timed for each layer of a variant, and what its timing cache holds.

        See ``rtlab.experiments.forcing``.

        Raises:
            VariantError: the variant is not built, or no log tells of tactics.
            ReadError: the timing cache cannot be read.
        """
        with watching(progress) as watched:
            return timed_tactics(self.facts_of(name), self.facts.values(), watched)

    def force(
        self,
        name: str,
        tactics: Mapping[str, str | int],
        *,
        as_: str = "forced",
        cache: str | Path | None = None,
        progress: Progress | None = None,
    ) -> Variant:
        """Plan a variant that is built with other tactics, for ``run`` and ``difference``.

        Args:
            name: A variant that was built with TensorRT and the options ``flags=["EDITABLE_TIMING_CACHE"]``
                and ``timing_cache``; that file is only read.
            tactics: By layer one that ``study.tactics`` lists: its id, or its kernel's name.
            as_: What the new variant is called.
            cache: Where the edited cache goes; beside the other by default.
            progress: Where to report; the host's reporter by default.

        Raises:
            VariantError: the variant's timing cache cannot be edited, or a layer or tactic is unknown.
            ReadError: the timing cache cannot be read.
            RtlabError: the edited one cannot be written.
        """
        result = self.facts_of(name)
        with watching(progress) as watched:
            made = forced(
                result, tactics, copy_path(result, as_, cache, self.variants), self.facts.values(), watched
            )
        return self._plan(as_, made, self._kept.scales.get(name))

    def measure_peaks(self, *, progress: Progress | None = None) -> Peaks:
        """Measure what this CPU reaches, so that times of the CPU can be judged by it; takes about two seconds.

        Raises:
            BackendError: ONNX Runtime does not work here.
            Cancelled: the work was stopped.
        """
        with watching(progress) as watched:
            found = measured_peaks(watched)
        self.processors = [found, *(p for p in self.processors if p.name != found.name)]
        self._changed()
        return found

    def time_forms(self, node: str, *, progress: Progress | None = None) -> tuple[Timed, ...]:
        """Time the forms of a recurrent node on this CPU: step by step, with its gates merged, with its input hoisted.

        Stopped before the end, it gives what was timed until then.

        Args:
            node: The recurrent node.
            progress: Where to report; the host's reporter by default.

        Raises:
            ModelError: the node is no recurrence that can be written out, or there is none of this name.
            BackendError: ONNX Runtime does not work here.
            Cancelled: stopped before each form was timed once.
        """
        layer = recurrent(self.model, node)
        with watching(progress) as watched:
            bench = OrtBench(watched)
            found = timed(
                layer, lambda model, batch: bench.open(model, batch, bench.threads), progress=watched
            )
        self._change(lambda kept: kept.timed(node, found))
        self._changed()
        return found
