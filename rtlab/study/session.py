"""Plans, jobs and what came of them: the one thing that changes. ``Study`` is its handle in a notebook.

A variant's layers come from the best builder, its times and tensors from what can run here. They are joined by
ONNX node, never by layer, and every number keeps the name of the engine and device that it came from.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from rtlab.analyses.findings import list_findings
from rtlab.analyses.findings.analysis import add_comparative_findings
from rtlab.analyses.releases import Releases, compare_releases
from rtlab.analyses.snapshot import Snapshot
from rtlab.analyses.titles import get_variant_titles
from rtlab.analyses.why import Verdict
from rtlab.analyses.why.fused_layer import FusedLayer
from rtlab.backends import compilers
from rtlab.backends.reference import get_evaluator
from rtlab.core import files
from rtlab.core.budget import WorkContext
from rtlab.core.facts import VariantResult
from rtlab.core.finding import Finding
from rtlab.core.model import Model
from rtlab.core.protocols import Progress
from rtlab.core.variant import Calibrator
from rtlab.errors import BackendError, VariantError, boundary
from rtlab.experiments.placement import LOSS, repair_placement
from rtlab.quantize import export, findings, scales
from rtlab.quantize import sparsity as _sparsity
from rtlab.quantize.export import Exported
from rtlab.quantize.sparsity import SparseWeight
from rtlab.study import records
from rtlab.study.bisecting import Bisections
from rtlab.study.checking import Checks
from rtlab.study.diagnosing import Diagnoses
from rtlab.study.observer import observe_values
from rtlab.study.progress import report_progress
from rtlab.study.recordings import Recordings
from rtlab.study.sample_selection import Selecting

R = TypeVar("R")


class Session(Bisections[R], Recordings[R], Checks[R], Diagnoses[R], Selecting[R]):
    """One model, several variants. ``R`` is how it hands out what is known of one: ``rtlab.Result`` in a notebook.

    Args:
        model: A loaded model, or what ``rtlab.load`` accepts.
        data: Samples for calibration and comparison, whatever ``CalibrationData.of`` takes; 64 random ones by
            default.
        task: Held-out samples with labels, for the task's accuracy.
        limits: Bounds of each build.
        stride: Of large activation maps every how many elements enter a histogram; 1 counts all of them, and takes
            longer. The least and the largest value are exact whatever it is.
    """

    def facts_of(self, name: str) -> VariantResult:
        """What is known of a variant, by its name or, where none has that name, by its title, as a chip shows it.

        Raises:
            VariantError: it is not built; or what it failed with.
        """
        state = self._state
        if isinstance(name, str) and name not in state.facts and name not in state.variants:
            name = next(
                (n for n, title in get_variant_titles(self.snapshot()).items() if title == name), name
            )
        return super().facts_of(name)

    def snapshot(self) -> Snapshot:
        """The study as it is now, for whoever reads several things of it while others add, run or remove variants."""
        state = self._state
        return Snapshot(
            self.model, state.variants, state.facts, state.failures, state.sweeps,
            tuned=self.tuned, processors=tuple(self.processors), calibration=self.calibration, user_data=self.given,
            data=self._data,
            task=self._selected_task, chosen=self.chosen, verdicts=state.verdicts,
            fusion_explanations=state.fusion_explanations, advice=state.advice, sensitivities=state.sensitivities,
            diagnoses=state.diagnoses, repairs=state.repairs, channels=state.channels, bisections=state.bisections,
        )  # fmt: skip

    @boundary("build with every release")
    def releases(self, name: str, *, progress: Progress | None = None) -> Releases:
        """Build a variant with every release of its compiler that is here, and set them side by side.

        A release that refuses is an answer of its own: a row with its words. What was built before a cancel is kept.

        Args:
            name: A variant.
            progress: Where to report; the host's reporter by default.

        Raises:
            VariantError: there is no such variant, or no other release of its compiler: see ``rtlab.compilers``.
            Cancelled: the work was stopped.
        """
        others = self.vary(name, "compilers")
        order = [c.backend for c in compilers.known()]
        ordered_names = sorted(
            (name, *others), key=lambda n: order.index(self.variants[n].backend or order[-1])
        )
        with report_progress(progress) as reporter:
            for one in ordered_names:
                with contextlib.suppress(BackendError, VariantError):
                    self.run([one], progress=reporter, compare=False)
        return compare_releases(self.snapshot(), ordered_names)

    @boundary("write a record")
    def record(self, found: Verdict | FusedLayer, path: str | Path, *, variant: str) -> Path:
        """Write a verdict, or why a step is one, as JSON; gives the path.

        With it goes all that it holds for.

        Args:
            found: What ``why`` gave.
            path: Where the record goes.
            variant: The variant that was asked about.

        Raises:
            VariantError: the variant is not built.
            RtlabError: the file cannot be written there.
        """
        text = records.create_record(self.facts_of(variant), found).text()
        return files.write(path, text.encode(), what="the record", model=self.model)

    @boundary("export the variant")
    def export(
        self, name: str, path: str | Path, *, cache: str | Path | None = None, version: str = export.VERSION
    ) -> Exported:
        """Write a variant's prepared model and its scales, and tell the commands that build it elsewhere.

        Args:
            name: A variant that is planned; it need not be built.
            path: The ONNX file; the scales go beside it, as ``.scales.json``.
            cache: Where a calibration cache of TensorRT 10 goes, for its implicit INT8.
            version: The version that the head of the cache names; TensorRT ignores a cache of another.

        Raises:
            VariantError: there is no such variant, or it has no INT8 activations for a cache.
            RtlabError: a file cannot be written, or is the one that the model was read from.
        """
        variant = self._require_variant(name, "export")
        ready = self.prepare(name)
        return export.export(self.model, variant, ready, path, cache=cache, version=version)

    def sparse_weights(self) -> tuple[SparseWeight, ...]:
        """Weights that could be 2:4 sparse, how sparse they are, and which cannot be pruned and why."""
        return _sparsity.find(self.model)

    def findings(self, name: str | None = None) -> tuple[Finding, ...]:
        """What is worth changing about a variant, harm by a treatment first, then the most costly; or about the model.

        Without a name: where the quantization that the model already has is placed badly, which ``repaired`` can
        repair; empty for a model without any.

        Raises:
            VariantError: the variant is not built.
        """
        if name is None:
            return findings.check(self.model, calibrated=True)
        facts = self.facts_of(name)
        return add_comparative_findings(list_findings(facts), facts, self.snapshot().facts.values())

    def repaired(
        self,
        chosen: Iterable[Finding | str] | None = None,
        *,
        max_loss: float = LOSS,
        progress: Progress | None = None,
    ) -> Model:
        """The model with findings repaired, all that can be by default.

        Where a pair is missing whose scale no other pair tells, the study's data calibrates it, with ``auto``. Every
        repair is run on the data, on random samples where there is none, and undone where a part of an output loses
        more than ``max_loss`` decibels: the notes of the model, and the finding, say so.

        Raises:
            VariantError: a given finding is not one of the model's, or rtlab cannot repair it.
            Cancelled: the work was stopped.
        """
        scales_by_value: dict[str, float] = {}

        def scale_of(value: str) -> float:
            if value not in scales_by_value:
                names = dict.fromkeys((*findings.missing(self.model), value))
                value_names = [n for n in names if n in self.model.values]
                ranges = observe_values(self.model, value_names, self.data, reporter)
                scales_by_value.update({n: s.scale for n, s in scales(ranges, Calibrator.AUTO).items()})
            if value not in scales_by_value:
                raise VariantError(
                    f'Cannot calibrate "{value}": the model computes no such value before it is repaired. '
                    "Repair the other findings first, and this one in the repaired model."
                )
            return scales_by_value[value]

        with report_progress(progress) as reporter:
            rig = WorkContext(get_evaluator(), reporter)
            repair = repair_placement(self.model, chosen, scale_of, lambda: self.data, rig, max_loss=max_loss)
        self.model.declined.update(repair.declined)
        notes = (*repair.model.notes, *repair.notes)
        return dataclasses.replace(repair.model, notes=notes, declined=dict(repair.declined))
