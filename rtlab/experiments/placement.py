"""Repairs of a model's own quantization that were run on samples: what makes an output worse is left undone."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from rtlab.analyses.accuracy import list_comparable_values
from rtlab.core.facts import format_decibel
from rtlab.core.slices import Slice, SliceSums
from rtlab.core.variant import Variant
from rtlab.errors import BackendError, CalibrationError, Unsized
from rtlab.experiments.running import fixed_batch, predict
from rtlab.quantize import existing_qdq, findings, prepare

if TYPE_CHECKING:
    from rtlab.core.budget import WorkContext
    from rtlab.core.data import CalibrationData
    from rtlab.core.finding import Finding
    from rtlab.core.model import Model
    from rtlab.core.protocols import Evaluator
    from rtlab.core.task import Predictions

#: Samples that a repair is run on.
_SAMPLES = 32
#: Decibels that a part of an output may lose by default, and beyond which an SQNR says no more.
LOSS, _TOP = 1.0, 90.0
#: Decibels below which what a repaired node writes has lost what INT8 keeps of numbers that have a scale of their own,
#: 30 to 48 dB; what reads it may have no use for the part on these samples, and the output not show it.
_POOR = 20.0
#: What else there is, by the rule of a finding whose repair makes values worse.
_INSTEAD: Mapping[str, str] = {
    "concat": "Take the pairs at its inputs out, so that each keeps its own scale behind it, or keep it in FP32.",
    "residual": "Leave this input without a pair: what reads it runs in a higher precision.",
}
_ELSE = "Leave it as it is, or keep the nodes around it in FP32."


def repair_placement(
    model: Model,
    selection: Iterable[Finding | str] | None,
    scale_of: Callable[[str], float],
    data: Callable[[], CalibrationData],
    context: WorkContext[Evaluator],
    *,
    max_loss: float = LOSS,
) -> Model:
    """A model with findings repaired, each run on samples, without those by which a part of an output loses too much.

    Its ``declined`` says by the id of such a finding what the repair would do, and what else there is; so do its notes.
    The loss of a repair is that of the SQNR to the model without its pairs, of each kind of numbers of each output, and
    of what the nodes of the findings write, where less than 20 dB are left of it; it may be ``max_loss`` decibels.

    ``selection`` are findings or their ids, by default all fixable ones; ``scale_of`` is that of ``findings.apply``.
    ``data`` gives samples of the inputs; a model whose sizes are open has none.

    Raises:
        VariantError: a chosen finding is not one of the model's, or rtlab cannot repair it.
        Cancelled: stopped.
    """
    selected_findings = findings.select(model, selection, calibrated=True)
    repaired_model, applied_findings = findings.apply(model, selected_findings, scale_of)
    doubtful = [f for f in applied_findings if not f.exact]
    if not doubtful:
        return dataclasses.replace(repaired_model, declined={})
    try:
        judge = _RepairEvaluator(model, doubtful, data(), context, max_loss)
    except (BackendError, CalibrationError, Unsized) as error:
        note = f"Repairs of the quantization were not run on samples, so that it is unknown what they cost: {error}"
        return dataclasses.replace(repaired_model, notes=(*repaired_model.notes, note), declined={})
    ids = list(dict.fromkeys(f.id for f in doubtful))
    exact = frozenset({f.id for f in applied_findings} - {*ids})
    losses: dict[str, str] = {}

    def accept_repairs(part: Sequence[str], prior_ids: frozenset[str]) -> frozenset[str]:
        """The repairs accepted before, and those of a part that do no harm beside them."""
        loss = judge.loss(findings.apply(model, exact | prior_ids | {*part}, scale_of)[0])
        if not loss:
            return prior_ids | {*part}
        if len(part) == 1:
            losses[part[0]] = loss
            return prior_ids
        middle = len(part) // 2
        return accept_repairs(part[middle:], accept_repairs(part[:middle], prior_ids))

    accepted_ids = accept_repairs(ids, frozenset())
    findings_by_id = {f.id: f for f in doubtful}
    on = f"on {len(judge.data)} samples of {judge.data.source}"
    declined = {
        i: f"Not repaired: '{findings_by_id[i].fix.rstrip('.')}' makes {loss} {on}. "
        f"{_INSTEAD.get(findings_by_id[i].rule, _ELSE)} study.calibration.fix_qdq(max_loss=...) takes the decibels "
        "that may be lost."
        for i, loss in losses.items()
    }
    notes = tuple(f"{findings_by_id[i].title} {text}" for i, text in declined.items())
    if losses:
        repaired_model = findings.apply(model, exact | accepted_ids, scale_of)[0]
    return dataclasses.replace(repaired_model, notes=(*repaired_model.notes, *notes), declined=declined)


class _RepairEvaluator:
    """Compares forms of one model on the same samples.

    Raises:
        BackendError: the model does not run.
        CalibrationError: there are no samples.
    """

    def __init__(
        self,
        model: Model,
        doubtful: Sequence[Finding],
        data: CalibrationData,
        context: WorkContext[Evaluator],
        max_loss: float,
    ) -> None:
        self.model, self.context, self.max_loss = model, context, max_loss
        nodes = [model.by_id[n] for f in doubtful for n in f.nodes if n in model.by_id]
        inner = [o for n in nodes if n.op not in {"QuantizeLinear", "DequantizeLinear"} for o in n.outputs]
        self.data = data.take(max(_SAMPLES, fixed_batch(model)))
        bare, emulation = existing_qdq.separate_existing_qdq(model, prepare(model, Variant()).emulation)
        comparable_names = {*list_comparable_values(bare, emulation)}
        self.values = tuple(o for o in dict.fromkeys((*model.outputs, *inner)) if o in comparable_names)
        self.reference = self._run(bare, self.values)
        self.before = self._measure(emulation)

    def loss(self, repaired_model: Model) -> str:
        """Which part of which value a repaired model makes worse, and by how much; empty where none."""
        emulation = prepare(repaired_model, Variant()).emulation
        try:
            after = self._measure(existing_qdq.separate_existing_qdq(repaired_model, emulation)[1])
        except BackendError as error:
            return f"a model that does not run ({error})"
        drops = {
            part: min(before.sqnr, _TOP) - min(after[part].sqnr, _TOP)
            for part, before in self.before.items()
            if part in after and (before.output in self.model.outputs or after[part].sqnr < _POOR)
        }
        worst = max(drops, key=drops.__getitem__, default="")
        if drops.get(worst, 0.0) <= self.max_loss:
            return ""
        return f"{worst} worse, from {format_decibel(self.before[worst].sqnr)} to {format_decibel(after[worst].sqnr)}"

    def _run(self, model: Model, value_names: tuple[str, ...]) -> Predictions:
        return predict(
            model, self.data, value_names, source=self.model, context=self.context, runner=self.context.tool
        )

    def _measure(self, emulation: Model) -> dict[str, Slice]:
        """Each kind of numbers of each value, by what it is called."""
        parts = self._run(emulation, tuple(v for v in self.values if v in emulation.values)).parts()
        slices = {}
        for name, batches in self.reference.parts().items():
            sums = SliceSums(name)
            for x, y in zip(batches, parts.get(name, []), strict=False):
                sums.add(x, y, len(x) if x.ndim else 1)
            slices.update({part.where: part for part in sums.by_kind()})
        return slices
