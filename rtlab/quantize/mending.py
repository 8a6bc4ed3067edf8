"""What reconstruction and bias correction make of what products read, for the passes that round."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from rtlab.core.phrases import many
from rtlab.core.variant import Precision
from rtlab.quantize import correct, weights
from rtlab.quantize.half_plan import stays
from rtlab.quantize.reconstruct import grid, reconstruct, scaled
from rtlab.quantize.treating import meant
from rtlab.quantize.windows import ProductForm, product

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.layer_inputs import LayerInputs
    from rtlab.core.model import Model
    from rtlab.core.variant import Variant

_FP4_LARGEST, _FP8_LARGEST = 6.0, 448.0


class Mending:
    """The treatments of one variant that need data, while its graph is prepared."""

    def __init__(
        self, model: Model, variant: Variant, inputs: LayerInputs | None, check: Callable[[], object]
    ) -> None:
        self.model, self.inputs, self._check = model, inputs, check
        asked = {k: [t for t in variant.treatments if t.kind == k] for k in ("reconstruct", "correct")}
        self._rebuilt, self._corrected = (meant(model, a) for a in asked.values())
        self._damping = {n: t.setting for t in asked["reconstruct"] for n in meant(model, [t])}
        self._asked = any(asked.values())
        #: Nodes whose weights were rounded so that their output stays.
        self.done: list[str] = []

    def rebuild(
        self,
        nodes: Sequence[str],
        weight: NDArray[np.float32],
        scale: NDArray[np.float32],
        precision: Precision,
    ) -> NDArray[np.float64] | None:
        """A weight as multiples of its scales, in its shape; None where its readers were not observed."""
        found = self._seconds(nodes)
        if found is None:
            return None
        one, second = found
        rows, sizes = (one.rows(np.asarray(a, np.float64)) for a in (weight, scale))
        self._check()
        made = reconstruct(rows, sizes, second, grid(precision), self._damping[nodes[0]])
        self.done += nodes
        steps: NDArray[np.float64] = one.tensor(made)
        return steps

    def stored(
        self, model: Model, plan: weights.FourBitPlan, precision: Precision
    ) -> Mapping[tuple[str, weights.ScaleLayout], weights.Stored]:
        """The weights of a plan in four bits whose readers were observed.

        Raises:
            ModelError: a weight holds NaN or infinity.
        """
        made: dict[tuple[str, weights.ScaleLayout], weights.Stored] = {}
        for (value, layout), nodes in plan.weights.items():
            found = self._seconds(nodes)
            if found is not None:
                weight = weights.read(model, value, nodes[0])
                made[value, layout] = self._four(found, weight, layout, precision, self._damping[nodes[0]])
                self.done += nodes
        return made

    def _four(
        self,
        read: tuple[ProductForm, NDArray[np.float64]],
        weight: NDArray[np.float32],
        layout: weights.ScaleLayout,
        precision: Precision,
        damping: float,
    ) -> weights.Stored:
        """Scales and steps with a small error of the output.

        Blocks lie along K, so that each of the rows is parted into blocks of neighbours.
        """
        one, second = read
        nearest, tiny = grid(precision), float(np.finfo(np.float32).tiny)
        rows = one.rows(weight.astype(np.float64))
        amax = np.abs(rows).reshape(one.groups, one.outputs, -1, layout.block or one.size).max(axis=3)
        whole = np.float32(max((float(amax.max()) or 1.0) / (_FP4_LARGEST * _FP8_LARGEST), tiny))

        def relative(scale: NDArray[np.float64]) -> NDArray[np.floating]:
            share = np.clip(scale / float(whole), 0, _FP8_LARGEST).astype(np.float32)
            return share.astype(ml_dtypes.float8_e4m3fn)

        def kept(scale: NDArray[np.float64]) -> NDArray[np.float64]:
            """What is stored of a scale."""
            four = precision is Precision.INT4
            held = np.maximum(scale, tiny) if four else relative(scale).astype(np.float32) * whole
            return np.asarray(held.astype(np.float32), np.float64)

        largest = np.where(amax > 0, amax, 1.0 if precision is Precision.INT4 else 0.0)
        largest /= 7.0 if precision is Precision.INT4 else _FP4_LARGEST
        self._check()
        scale, steps = scaled(rows, largest, second, nearest, store=kept, damping=damping)
        flat = scale.reshape(one.groups * one.outputs, -1)
        shaped = flat[:, 0] if not layout.block else flat.T if one.turned else flat
        kind = ml_dtypes.int4 if precision is Precision.INT4 else ml_dtypes.float4_e2m1fn
        values = one.tensor(steps).astype(np.float32)
        if precision is Precision.INT4:
            return weights.Stored(
                layout, values.astype(np.int8).astype(kind), np.ascontiguousarray(shaped, np.float32)
            )
        return weights.Stored(layout, values.astype(kind), relative(shaped), np.asarray(whole))

    def _seconds(self, nodes: Sequence[str]) -> tuple[ProductForm, NDArray[np.float64]] | None:
        """The second moments of what all readers of a weight read; None unless all were asked for and observed."""
        seen = {} if self.inputs is None else self.inputs.nodes
        found = [seen[n] for n in nodes if n in seen and n in self._rebuilt]
        one = product(self.model, self.model.by_id[nodes[0]])
        if len(found) < len(nodes) or isinstance(one, str):
            return None
        shape = (one.groups, one.size, one.size)
        moments = [r.second for r in found]
        if any(m is None or m.shape != shape for m in moments):
            return None
        total = sum(r.rows for r in found)
        parts = [np.asarray(m, np.float64) * (r.rows / total) for r, m in zip(found, moments, strict=True)]
        return one, np.sum(parts, axis=0) if len(parts) > 1 else parts[0]

    def correction(
        self,
        typed: Model,
        made: Mapping[Precision, Mapping[tuple[str, weights.ScaleLayout], weights.Stored]],
        plans: Mapping[Precision, weights.FourBitPlan],
    ) -> correct.Correct | None:
        """What is taken off biases; None where nothing is.

        Args:
            typed: The graph with INT8 and FP8 in it, and not yet four bits.
            made: Weights in four bits that were rounded already.
            plans: All weights that are to be in four bits.
        """
        shifts: dict[str, NDArray[np.float64]] = {}
        without: list[str] = []
        rounded = {**_eight(typed, self._corrected), **_fours(typed, made, plans, self._corrected)}
        for node, numbers in rounded.items():
            read = self.inputs.nodes.get(node) if self.inputs is not None else None
            one = product(self.model, self.model.by_id[node])
            if read is None or isinstance(one, str):
                continue
            if correct.bias(typed, node) is None:
                without.append(node)
                continue
            weight = np.asarray(self.model.known[one.weight].numpy())
            shifts[node] = correct.shift(one, read, weight, numbers)
        if not shifts:
            return None
        told = f"the mean error of rounding taken off {many(len(shifts), 'bias', 'biases')}"
        return correct.Correct(
            shifts,
            (
                told,
                *stays({"nothing constant is added behind it": without} if without else {}, "uncorrected"),
            ),
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What was done, and what was not, in words."""
        if not self._asked:
            return ()
        if self.inputs is None:
            return ("neither reconstructed nor corrected: what products read was not observed",)
        basis = f"on {many(self.inputs.samples, 'sample')}"
        told = [f"weights of {many(len(set(self.done)), 'node')} reconstructed {basis}"] if self.done else []
        if self._rebuilt and not self.done:
            told.append("nothing to reconstruct: no product has weights of INT8, FP8, INT4 or FP4")
        return (*told, *stays(dict(self.inputs.skipped), "to nearest"))


def _eight(typed: Model, nodes: Collection[str]) -> dict[str, NDArray[np.float32]]:
    """The numbers of weights in INT8 and FP8, by the node that reads them."""
    found: dict[str, NDArray[np.float32]] = {}
    for id_ in nodes:
        node = typed.by_id[id_]
        maker = typed.producers.get(node.inputs[1]) if len(node.inputs) > 1 else None
        if maker is None or maker.op != "DequantizeLinear" or maker.origin == maker.id:
            continue
        # The second input of a sum or a Concat may be an activation.
        if any(v not in typed.known for v in maker.inputs[:2]):
            continue
        values, scale = (np.asarray(typed.known[v].numpy()).astype(np.float32) for v in maker.inputs[:2])
        axis = maker.attributes.get("axis", 1)
        if scale.ndim and isinstance(axis, int):
            scale = scale.reshape([-1 if i == axis else 1 for i in range(values.ndim)])
        found[id_] = values * scale
    return found


def _fours(
    typed: Model,
    made: Mapping[Precision, Mapping[tuple[str, weights.ScaleLayout], weights.Stored]],
    plans: Mapping[Precision, weights.FourBitPlan],
    nodes: Collection[str],
) -> dict[str, NDArray[np.float32]]:
    """The numbers of weights in four bits, by the node that reads them."""
    found: dict[str, NDArray[np.float32]] = {}
    for precision, key, readers in _read(plans):
        wanted = [n for n in readers if n in nodes]
        if wanted:
            stored = made.get(precision, {}).get(key)
            if stored is None:
                stored = weights.store(weights.read(typed, key[0], readers[0]), key[1], precision)
            found.update(dict.fromkeys(wanted, stored.dequantized()))
    return found


def _read(
    plans: Mapping[Precision, weights.FourBitPlan],
) -> Iterator[tuple[Precision, tuple[str, weights.ScaleLayout], tuple[str, ...]]]:
    for precision, plan in plans.items():
        for key, readers in plan.weights.items():
            yield precision, key, readers
