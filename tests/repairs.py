"""Every trained sample, in every precision and by every calibrator, through ``study.repair``.

``python tests/repairs.py`` writes ``docs/repair.md``. Where nodes are kept high, all that costs no time and every
smaller set of nodes is run beside, so that the page says what was proved rather than what was searched.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import onnxruntime

import pages
import rtlab
from planted_faults import quantized
from rtlab.core.metrics import Tally
from rtlab.core.model import wrap
from rtlab.core.progress import Silent
from rtlab.core.task import Task
from rtlab.core.uncertainty import paired
from rtlab.core.variant import CALIBRATORS
from rtlab.errors import VariantError
from rtlab.quantize import own
from rtlab.questions.repair import AccuracyRepair

PAGE = Path(__file__).parents[1] / "docs" / "repair.md"
#: What a score may stay behind fp32, in points, and how many variants may be run.
MAX_DROP, RUNS = 0.5, 12
TRAINED = (
    "digits_outlier", "digits_inception", "digits_mobilenet", "digits_vit", "digits_light", "digits_dark",
    "digits_sparse24", "digits_gru", "digits_lstm", "fp16_overflow", "sentences", "digits_qat", "digits_qat_misplaced",
)  # fmt: skip
#: What is quantized already is not quantized again; its own pairs are what rounds.
QUANTIZED = frozenset({"digits_qat", "digits_qat_misplaced"})
#: Samples that are taken, too, as somebody else's file has them: in INT8 by minmax, without a word of what they were.
THEIRS = ("digits_outlier", "digits_inception", "digits_mobilenet", "digits_light")
OWN = "its own"
#: All sets of so many nodes and fewer are run, at most; and nodes of a set that can be.
SETS = 2_000


@dataclasses.dataclass(frozen=True)
class Row:
    """One variant of one sample, and what was found for it; ``proved`` says how, where nodes are kept high."""

    sample: str
    precision: str
    calibrator: str
    found: AccuracyRepair
    proved: str = ""

    @property
    def behind(self) -> float:
        """How far the repaired one is behind fp32, in points."""
        return self.found.baseline - self.found.after


def choices(sample: str) -> Iterator[tuple[str, str]]:
    """Precisions and calibrators; none where the precision needs none."""
    yield "fp16", ""
    if sample in QUANTIZED:
        yield "int8", OWN
    else:
        yield "int4", ""
        for precision in ("int8", "fp8"):
            for calibrator in CALIBRATORS:
                yield precision, str(calibrator)
    if sample in THEIRS:
        yield "int8", f"{OWN}, by minmax"


def planned(sample: str, precision: str, calibrator: str) -> rtlab.Study:
    """A study with the variant ``v`` of a sample."""
    given = rtlab.samples.load(sample)
    model, theirs = given.model, calibrator.startswith(OWN)
    if theirs and sample in THEIRS:
        model = wrap(quantized(model, given.calibration)[0], name=sample)
    study = rtlab.Study(model, data=given.calibration, task=given.task)
    study.add(
        "v", precision=precision, backend="onnxruntime", calibrator=None if theirs else calibrator or None
    )
    return study.run(["v"], compare=False)


def row(sample: str, precision: str, calibrator: str = "", *, prove: bool = True) -> Row:
    """What is found for one variant, with the proof where nodes are kept high and it is wanted."""
    study = planned(sample, precision, calibrator)
    found = study.repair("v", MAX_DROP, runs=RUNS)
    return Row(sample, precision, calibrator, found, proof(study, found) if found.kept_high and prove else "")


def table(names: Iterable[str] = TRAINED) -> Iterator[Row]:
    """All rows."""
    for name in names:
        for precision, calibrator in choices(name):
            yield row(name, precision, calibrator)


def proof(study: rtlab.Study, found: AccuracyRepair) -> str:
    """Run all that costs no time, and every smaller set of nodes, on the samples that the choice was made by.

    Raises:
        AssertionError: one of them suffices, so that nodes are kept high without need.
    """
    task = study.task
    assert task is not None
    arrays = {k: a[::2] for k, a in task.data.arrays.items()}
    half = Task(dataclasses.replace(task.data, arrays=arrays), task.labels[::2], task.metric)
    variant = study.variants["v"]
    precision = str(variant.precision)
    enough = functools.partial(_enough, study, half)
    free = [
        {"precision": precision, "calibrator": calibrator, "weights": weights, "treatments": [*treatments]}
        for calibrator in (CALIBRATORS if variant.calibrator is not None else (None,))
        for weights in ("channel", "tensor")
        for count in range(5)
        for treatments in itertools.combinations(("equalize", "smooth", "reconstruct", "correct"), count)
    ]
    kinds: dict[str, dict] = {}
    for choice in free:
        kinds.setdefault(rtlab.Variant.of(**choice).id, choice)
    for choice in kinds.values():
        assert not enough(choice), f"{choice} suffices"
    nodes = [n.id for n in study.model.top]
    runs = 0
    largest = 0
    for size in range(1, len(found.kept_high)):
        sets = [*itertools.combinations(nodes, size)]
        if runs + len(sets) > SETS:
            break
        for some in sets:
            pins = {"*": precision, **dict.fromkeys(some, "fp32")}
            assert not enough({**found.choice, "precision": pins}), f"{some} suffice"
        runs, largest = runs + len(sets), size
    fewer = f", nor do any {largest} of the nodes or fewer in FP32 ({runs} runs)" if largest else ""
    return f"none of {len(kinds)} variants that cost no time suffices{fewer}"


def _enough(study: rtlab.Study, half: Task, choice: dict) -> bool:
    """Whether a choice is within reach of fp32, or cannot be told from it; run by ONNX Runtime alone."""
    study.add("tried", **{**choice, "backend": "onnxruntime"})
    try:
        tried = _tally(study.prepare("tried").emulate(Silent()), half)
    except VariantError:
        return False
    finally:
        study.remove("tried")
    plain = _tally(own.apart(study.model, study.model)[0], half)
    if plain.value - tried.value <= MAX_DROP:
        return True
    told = paired(plain, tried)
    return told is not None and told.interval is not None and not told.sure


def _tally(model: rtlab.Model, half: Task) -> Tally:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    session = onnxruntime.InferenceSession(model.bytes(), options, providers=["CPUExecutionProvider"])
    found = zip(*(session.run(None, dict(b)) for b in half.data.batches(model, 64)), strict=True)
    outputs = {name: np.concatenate(parts) for name, parts in zip(model.outputs, found, strict=True)}
    return half.tally(outputs, len(half.labels))


def written(found: list[Row]) -> str:
    """The page."""
    changed = [r for r in found if r.found.changes]
    sure = [r for r in found if r.behind <= MAX_DROP]
    lines = pages.flow(
        f"""
        # What a repair finds

        Every trained sample of rtlab in every precision and by every calibrator, through
        `study.repair(variant, max_drop={MAX_DROP})`; some also as somebody else's file has them, quantized in their
        own graph. A repair chooses on every second held-out sample and reports on
        the others; all scores here are of those, measured on ONNX Runtime's CPU. `python tests/repairs.py` counts anew.

        Of {len(found)} variants {len(sure)} end within {MAX_DROP} points of fp32 and {len(found) - len(sure)} further
        away, by less than the samples can tell: the 95 % interval of the paired difference holds zero.
        {len(changed)} were changed, with {max(r.found.runs for r in found)} verifying runs at most
        ({np.median([r.found.runs for r in changed]):g} in the median); the others were near enough as they came.
        Nodes are kept high in {sum(bool(r.found.kept_high) for r in found)}.

        ## Variants that were changed
        """
    )
    lines += pages.rows(
        (
            "sample",
            "variant",
            "fp32",
            "before",
            "after",
            "change",
            "nodes kept high",
            "runs",
            "difference to fp32",
        ),
        (
            (
                r.sample,
                f"{r.precision} {r.calibrator}".strip(),
                f"{r.found.baseline:.2f}",
                f"{r.found.before:.2f}",
                f"{r.found.after:.2f}",
                "; ".join(c.what for c in r.found.changes),
                len(r.found.kept_high),
                r.found.runs,
                r.found.told,
            )
            for r in changed
        ),
    )
    proved = [r for r in found if r.found.kept_high]
    if proved:
        lines += ["## Why nodes are kept high", ""]
        lines += [
            f"- {r.sample}, {r.precision}: {', '.join(r.found.kept_high)}. By runs, {r.proved}."
            for r in proved
        ]
        lines.append("")
    lines += ["## Variants that were near enough as they came", ""]
    lines += pages.rows(
        ("sample", "variant", "fp32", "score", "runs", "difference to fp32"),
        (
            (
                r.sample,
                f"{r.precision} {r.calibrator}".strip(),
                f"{r.found.baseline:.2f}",
                f"{r.found.before:.2f}",
                r.found.runs,
                r.found.told,
            )
            for r in found
            if not r.found.changes
        ),
    )
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(written([*table()]), encoding="utf-8")
