"""Measurements of ``study.accuracy.check``."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import math
from pathlib import Path

import numpy as np

from rtlab.analyses import check, roofline
from rtlab.analyses.check import record
from rtlab.analyses.check.record import CheckRecord
from rtlab.backends.reference import get_evaluator, get_runner
from rtlab.core.budget import WorkContext
from rtlab.core.data import CalibrationData
from rtlab.core.facts import SCORED, Score, VariantResult
from rtlab.core.inputs import read_input
from rtlab.core.model import Model
from rtlab.core.protocols import Progress
from rtlab.core.variant import Precision, Variant
from rtlab.errors import CalibrationError, ReadError
from rtlab.experiments.running import predict
from rtlab.experiments.sizing import batch_size, fixed_batch
from rtlab.quantize import existing_qdq
from rtlab.study.planning import add_variant
from rtlab.study.runner import StudyRunner

#: Inferences of a round at the least.
_RUNS = 10


def is_plain(model: Model, variant: Variant) -> bool:
    """Whether a variant rounds nothing; in fp32 a model's own pairs still do."""
    has_release = any(r.kind == "release" for r in variant.rewrites)
    return {*variant.precisions} == {Precision.FP32} and (
        has_release or not existing_qdq.has_rounding_pairs(model)
    )


def _score_bare(runner: StudyRunner, progress: Progress) -> Score | None:
    """The score of a model without its own pairs; None without a task, and where it gives no numbers."""
    task = runner.observations.scoring_task(progress)
    if task is None:
        return None
    model, evaluator = runner.holder.state.model, get_evaluator()
    plain_model = existing_qdq.separate_existing_qdq(model, model)[0]
    output_names = tuple(task.wanted(plain_model))
    data = task.data.take(max(SCORED, fixed_batch(plain_model)))
    size, rig = batch_size(plain_model, output_names, data, evaluator), WorkContext(evaluator, progress)
    outputs = predict(plain_model, data, output_names, size, runner=evaluator, context=rig)
    with contextlib.suppress(CalibrationError):
        return Score.of(task, outputs, str(evaluator.source))
    return None


def score_reference(
    runner: StudyRunner, facts: VariantResult, seconds: float, progress: Progress
) -> VariantResult:
    """The variant that a score is compared with, built and scored."""
    variant, state = facts.variant, runner.holder.state
    reference_names = [
        n for n, v in state.variants.items()
        if is_plain(state.model, v) and not (n in state.results and state.results[n].recorded)
    ]  # fmt: skip
    scored_names = [n for n in reference_names if n in state.results and state.results[n].score is not None]
    name = next(iter((*scored_names, *reference_names)), "")
    if not name and existing_qdq.has_rounding_pairs(state.model):
        return dataclasses.replace(facts, score=_score_bare(runner, progress), errors=None)
    if not name:
        name = next(n for n in ("fp32", "fp32 of the check") if n not in state.variants)
        add_variant(runner.holder, name, precision="fp32", target=variant.target, backend=variant.backend)
    if not scored_names:
        runner.run([name], budget_s=seconds, progress=progress)
    return runner.holder.result(name)


def time_rounds(
    facts: VariantResult, data: CalibrationData, seconds: float, progress: Progress
) -> tuple[float, ...]:
    """Medians of inferences in milliseconds, each of a session of its own; empty where no measured time counts.

    One session may be faster than the next by where its memory lies, which its own inferences do not show.
    """
    if facts.measured is None or facts.recorded or not seconds:
        return ()
    estimate = roofline.estimate_timing(facts)
    if estimate is not None and estimate.estimated is not None:
        return ()
    runner = get_runner(facts.measured.backend)
    batch = next(data.batches(facts.prepared.model, 1))
    each = seconds / check.ROUNDS if math.isfinite(seconds) else None
    medians = []
    for _ in range(check.ROUNDS):
        profile = runner.profile(facts.measured, batch, progress, runs=_RUNS, seconds=each)
        medians.append(float(np.median(profile.total)))
    return tuple(medians)


def read_check_record(path: str | Path) -> CheckRecord:
    """What an earlier check saved.

    Raises:
        ReadError: there is no such file, or it is no record of a check.
    """
    try:
        text = read_input(path)
    except OSError as error:
        raise ReadError(
            f'Cannot check against "{path}": {error.strerror or error}. Give a file that rtlab check --save wrote.'
        ) from error
    return record.read(text, str(path))


def list_versions(facts: VariantResult) -> dict[str, str]:
    """Releases of rtlab and of the compilers that a variant rests on, by name."""
    engines = [e for e in (facts.engine, facts.measured) if e is not None]
    return {
        "rtlab": importlib.metadata.version("rtlab"),
        **{e.compiler: e.version for e in engines if e.version},
    }
