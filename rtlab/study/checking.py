"""Whether a variant keeps what is asked of it, for whoever lets nothing worse pass."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from rtlab.analyses import check, findings, roofline
from rtlab.analyses.check import CheckResult, record, times
from rtlab.analyses.check.record import CheckRecord
from rtlab.analyses.check.row import CheckLimits, CheckName
from rtlab.analyses.findings.analysis import add_comparative_findings
from rtlab.backends.reference import get_evaluator, get_runner
from rtlab.core import files
from rtlab.core.budget import BUDGET_S, WorkContext, parse_budget
from rtlab.core.facts import SCORED, Score, VariantResult
from rtlab.core.inputs import read_input
from rtlab.core.protocols import Progress
from rtlab.core.variant import Precision, Variant
from rtlab.errors import CalibrationError, ReadError, boundary
from rtlab.experiments.running import predict
from rtlab.experiments.sizing import batch_size, fixed_batch
from rtlab.quantize import existing_qdq
from rtlab.study.progress import report_progress
from rtlab.study.runs import Runs

R = TypeVar("R")

#: Inferences of a round at the least.
_RUNS = 10


class Checks(Runs[R]):
    """Checks variants."""

    @boundary("check the variant")
    def check(
        self,
        variant: str,
        *,
        max_drop: float | None = None,
        max_latency_regression: float | None = None,
        against: str | Path | CheckRecord | None = None,
        fail_on: CheckName | Sequence[CheckName] = (),
        sure: bool = False,
        save: str | Path | None = None,
        budget_s: float = BUDGET_S,
        progress: Progress | None = None,
    ) -> CheckResult:
        """Whether a variant keeps its limits: its score beside fp32, and all else beside an earlier check.

        It is built, timed and scored where it is not yet; so is fp32 where the study has a task and no such variant.
        What is not limited is told. Nothing is compared that is not of one kind: a time that was measured on another
        processor, or estimated, is not checked, and the result says so.

        Args:
            variant: Its name.
            max_drop: How far its score may be worse than that of fp32, in the unit of the score.
            max_latency_regression: How much slower it may be than before, in percent. A difference within what the
                times vary by is not called a regression.
            against: A file that an earlier check saved, or what it holds.
            fail_on: What may not be worse than before at all: "fusion", "precision", "findings".
            sure: Whether the whole interval of the drop has to be within ``max_drop``, and not the drop alone.
            save: Where to write what was found, for a later check; not written where a limit is broken.
            budget_s: Seconds that measuring each variant may take.
            progress: Where to report; the host's reporter by default.

        Raises:
            VariantError: there is no such variant, a limit is none, or the earlier check is of another model.
            ReadError: there is no such file, or it is no record of a check.
            Cancelled: the work was stopped.
        """
        planned_variant = self._require_variant(variant, "check")
        several: Sequence[CheckName] = (fail_on,) if isinstance(fail_on, str) else fail_on
        limits = CheckLimits(max_drop, max_latency_regression, tuple(several), sure)
        # Before anything is built: most who mistype a name do it here.
        earlier_record = _read_check_record(against) if isinstance(against, (str, Path)) else against
        seconds = parse_budget(budget_s)
        with report_progress(progress) as reporter:
            if variant not in self.facts or self.outdated(variant):
                self.run([variant], budget_s=seconds, progress=reporter)
            facts = self.facts_of(variant)
            fp32 = facts if self._is_plain(planned_variant) and not facts.recorded else None
            if fp32 is None and self.task is not None and not facts.recorded:
                fp32 = self._score_reference(facts, seconds, reporter)
            rounds = self._time_rounds(facts, seconds, reporter)
        facts = self.facts_of(variant)
        listed_findings = add_comparative_findings(findings.list_findings(facts), facts, self.facts.values())
        current_record = check.build_record(facts, listed_findings, rounds, _versions(facts))
        check_result = check.check_variant(facts, fp32, current_record, earlier_record, limits)
        if save is not None and not check_result.broken:
            files.write(save, current_record.text().encode(), what="the record of a check", model=self.model)
        return check_result

    def _is_plain(self, variant: Variant) -> bool:
        """Whether a variant rounds nothing; in fp32 a model's own pairs still do."""
        has_release = any(r.kind == "release" for r in variant.rewrites)
        return {*variant.precisions} == {Precision.FP32} and (
            has_release or not existing_qdq.has_rounding_pairs(self.model)
        )

    def _score_bare(self, progress: Progress) -> Score | None:
        """The score of a model without its own pairs; None without a task, and where it gives no numbers."""
        task = self._prepare_scoring_task(progress)
        if task is None:
            return None
        plain_model, runner = existing_qdq.separate_existing_qdq(self.model, self.model)[0], get_evaluator()
        output_names = tuple(task.wanted(plain_model))
        data = task.data.take(max(SCORED, fixed_batch(plain_model)))
        size, rig = batch_size(plain_model, output_names, data, runner), WorkContext(runner, progress)
        outputs = predict(plain_model, data, output_names, size, runner=runner, context=rig)
        with contextlib.suppress(CalibrationError):
            return Score.of(task, outputs, str(runner.source))
        return None

    def _score_reference(self, facts: VariantResult, seconds: float, progress: Progress) -> VariantResult:
        """The variant that a score is compared with, built and scored."""
        variant = facts.variant
        reference_names = [
            n for n, v in self.variants.items()
            if self._is_plain(v) and not (n in self.facts and self.facts[n].recorded)
        ]  # fmt: skip
        scored_names = [n for n in reference_names if n in self.facts and self.facts[n].score is not None]
        name = next(iter((*scored_names, *reference_names)), "")
        if not name and existing_qdq.has_rounding_pairs(self.model):
            return dataclasses.replace(facts, score=self._score_bare(progress), errors=None)
        if not name:
            name = next(n for n in ("fp32", "fp32 of the check") if n not in self.variants)
            release = [f"release {n}" for n in existing_qdq.find_quantized_nodes(self.model)]
            self.add(name, precision="fp32", target=variant.target, backend=variant.backend, rewrites=release)
        if not scored_names:
            self.run([name], budget_s=seconds, progress=progress)
        return self.facts_of(name)

    def _time_rounds(self, facts: VariantResult, seconds: float, progress: Progress) -> tuple[float, ...]:
        """Medians of inferences in milliseconds, each of a session of its own; empty where nothing ran here to count.

        One session may be faster than the next by where its memory lies, which its own inferences do not show.
        """
        if facts.measured is None or facts.recorded or not seconds:
            return ()
        estimate = roofline.estimate_timing(facts)
        if estimate is not None and estimate.estimated is not None:
            return ()
        runner = get_runner(facts.measured.backend)
        batch = next(self.data.batches(facts.prepared.model, 1))
        each = seconds / times.ROUNDS if math.isfinite(seconds) else None
        medians = []
        for _ in range(times.ROUNDS):
            profile = runner.profile(facts.measured, batch, progress, runs=_RUNS, seconds=each)
            medians.append(float(np.median(profile.total)))
        return tuple(medians)


def _read_check_record(path: str | Path) -> CheckRecord:
    try:
        text = read_input(path)
    except OSError as error:
        raise ReadError(
            f'Cannot check against "{path}": {error.strerror or error}. Give a file that rtlab check --save wrote.'
        ) from error
    return record.read(text, str(path))


def _versions(facts: VariantResult) -> dict[str, str]:
    engines = [e for e in (facts.engine, facts.measured) if e is not None]
    return {
        "rtlab": importlib.metadata.version("rtlab"),
        **{e.compiler: e.version for e in engines if e.version},
    }
