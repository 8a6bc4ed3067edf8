"""Repairs of a model's own quantization that were run on samples: what makes an output worse is left undone."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from rtlab.core.facts import decibel
from rtlab.core.slices import Slice, SliceSums
from rtlab.core.variant import Variant
from rtlab.errors import BackendError, CalibrationError, Unsized
from rtlab.experiments.repairing import predicted
from rtlab.experiments.sizing import batch_size, fixed_batch
from rtlab.quantize import findings, own, prepare
from rtlab.questions.accuracy.errors import comparable

if TYPE_CHECKING:
    from rtlab.core.data import CalibrationData
    from rtlab.core.finding import Finding
    from rtlab.core.model import Model
    from rtlab.core.protocols import Evaluator
    from rtlab.core.task import Predictions
    from rtlab.experiments.experiment import Rig

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


@dataclasses.dataclass(frozen=True)
class PlacementRepair:
    """A model with findings repaired, and those that stay as they are.

    ``declined`` says by the id of a finding what its repair would do, and what else there is; ``notes`` are the same
    in sentences of their own, with what they rest on.
    """

    model: Model
    declined: Mapping[str, str]
    notes: tuple[str, ...] = ()


def repair_placement(
    model: Model,
    chosen: Iterable[Finding | str] | None,
    scale_of: Callable[[str], float],
    data: Callable[[], CalibrationData],
    rig: Rig[Evaluator],
    *,
    max_loss: float = LOSS,
) -> PlacementRepair:
    """Repair findings of a model, each run on samples, and undo those by which a part of an output loses too much.

    What a repair loses is told by the SQNR to the model without its pairs, of each kind of numbers of each output, and
    of what the nodes write that the findings are about, where less than 20 dB are left of it.

    Args:
        model: It is not changed.
        chosen: Findings or their ids; all that are fixable by default.
        scale_of: As for ``findings.repair``.
        data: Gives samples of its inputs; a model whose sizes are open has none.
        rig: What runs them.
        max_loss: How many decibels a part of an output may lose.

    Raises:
        VariantError: a chosen finding is not one of the model's, or rtlab cannot repair it.
        Cancelled: stopped.
    """
    wanted = findings.select(model, chosen, calibrated=True)
    repaired, applied = findings.apply(model, wanted, scale_of)
    doubtful = [f for f in applied if not f.exact]
    if not doubtful:
        return PlacementRepair(repaired, {})
    judge = _Judge(model, doubtful, data, rig, max_loss)
    if (why := judge.silent) is not None:
        note = (
            f"Repairs of the quantization were not run on samples, so that nobody knows what they cost: {why}"
        )
        return PlacementRepair(repaired, {}, (note,))
    ids = list(dict.fromkeys(f.id for f in doubtful))
    exact = frozenset({f.id for f in applied} - {*ids})
    losses: dict[str, str] = {}

    def settle(part: Sequence[str], kept: frozenset[str]) -> frozenset[str]:
        """What of a part does no harm beside what was kept before."""
        loss = judge.loss(findings.apply(model, exact | kept | {*part}, scale_of)[0])
        if not loss:
            return kept | {*part}
        if len(part) == 1:
            losses[part[0]] = loss
            return kept
        middle = len(part) // 2
        return settle(part[middle:], settle(part[:middle], kept))

    kept = settle(ids, frozenset())
    if not losses:
        return PlacementRepair(repaired, {})
    known = {f.id: f for f in doubtful}
    on = f"on {judge.samples} samples of {judge.data.source}"
    declined = {
        i: f"Not repaired: '{known[i].fix.rstrip('.')}' makes {loss} {on}. "
        f"{_INSTEAD.get(known[i].rule, _ELSE)} study.repaired(max_loss=...) takes the decibels that may be lost."
        for i, loss in losses.items()
    }
    notes = tuple(f"{known[i].title} {text}" for i, text in declined.items())
    return PlacementRepair(findings.apply(model, exact | kept, scale_of)[0], declined, notes)


class _Judge:
    """Compares forms of one model on the same samples.

    ``silent`` says why it can compare nothing, None where it can.
    """

    def __init__(
        self,
        model: Model,
        doubtful: Sequence[Finding],
        data: Callable[[], CalibrationData],
        rig: Rig[Evaluator],
        max_loss: float,
    ) -> None:
        self.rig, self.max_loss = rig, max_loss
        self.model = model
        self.silent: str | None = None
        nodes = [model.by_id[n] for f in doubtful for n in f.nodes if n in model.by_id]
        inner = [o for n in nodes if n.op not in {"QuantizeLinear", "DequantizeLinear"} for o in n.outputs]
        try:
            self.data = data().take(max(_SAMPLES, fixed_batch(model)))
            self.samples = len(self.data)
            bare, emulation = own.apart(model, prepare(model, Variant()).emulation)
            known = {*comparable(bare, emulation)}
            self.values = tuple(o for o in dict.fromkeys((*model.outputs, *inner)) if o in known)
            self.reference = self._run(bare, self.values)
            self.before = self._measure(emulation)
        except (BackendError, CalibrationError, Unsized) as error:
            self.silent = str(error)

    def loss(self, repaired: Model) -> str:
        """Which part of which value a repaired model makes worse, and by how much; empty where none."""
        try:
            after = self._measure(own.apart(repaired, prepare(repaired, Variant()).emulation)[1])
        except BackendError as error:
            return f"a model that does not run ({error})"
        lost = {
            part: min(before.sqnr, _TOP) - min(after[part].sqnr, _TOP)
            for part, before in self.before.items()
            if part in after and (before.output in self.model.outputs or after[part].sqnr < _POOR)
        }
        worst = max(lost, key=lost.__getitem__, default="")
        if lost.get(worst, 0.0) <= self.max_loss:
            return ""
        return f"{worst} worse, from {decibel(self.before[worst].sqnr)} to {decibel(after[worst].sqnr)}"

    def _run(self, model: Model, wanted: tuple[str, ...]) -> Predictions:
        runner = self.rig.tool
        size = batch_size(model, wanted, self.data, runner)
        return predicted(model, self.data, wanted, size, runner=runner, rig=self.rig)

    def _measure(self, emulation: Model) -> dict[str, Slice]:
        """Each kind of numbers of each value, by what it is called."""
        found = self._run(emulation, tuple(v for v in self.values if v in emulation.values)).parts()
        measured = {}
        for name, batches in self.reference.parts().items():
            sums = SliceSums(name)
            for x, y in zip(batches, found.get(name, []), strict=False):
                sums.add(x, y, len(x) if x.ndim else 1)
            measured.update({part.where: part for part in sums.by_kind()})
        return measured
