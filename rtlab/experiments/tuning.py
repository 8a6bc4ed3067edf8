"""Auto-tuning on the CPU: each layer in all formulations, timed; the fastest put together and timed as a whole.

It is what a TensorRT builder does on a GPU with its tactics, with formulations that anyone can read: ONNX graphs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from google.protobuf.message import EncodeError

from rtlab.core.arrays import Batch
from rtlab.core.model import Model
from rtlab.core.trace import Outputs
from rtlab.errors import Cancelled, ModelError, RtlabError, VariantError
from rtlab.experiments.experiment import Rig
from rtlab.experiments.race import Bench, Entrant, Race
from rtlab.formulations import DIRECT, FORMULATIONS, Formulation, WeightedNode, composed, offered, tunable
from rtlab.formulations import layer as formulated
from rtlab.formulations.cache import timing_cache
from rtlab.formulations.trial import Trial, Tuned, TunedLayer, Whole, clearly

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: The least and the largest part of the time that is kept for whole models.
_FOR_WHOLE, _MOST_FOR_WHOLE = 0.25, 0.5
#: Comparing a model with the tuned one takes about so many times as long as loading and running it once.
_COMPARING = 2.0
#: ONNX Runtime starts as many as it is told, and the machine stands still.
_MOST_THREADS = 1024


@dataclasses.dataclass(frozen=True)
class CpuTuning:
    """Tune convolutions and products of a model for one batch on this CPU.

    The costliest layers come first, and layers of the same operator, shapes and attributes are timed once. Each
    formulation must give what the direct one gives on the layer's own input, up to rounding, or it is refused. The
    formulations of a layer are timed in turn, so that a drift of the machine's speed meets all. Where the fastest is
    faster than the direct one by more than noise, it takes its place in a model that is compared with the model as it
    is. The seconds of the rig's allowance are shared among layers and whole models, so that the end may lie behind
    them; stopped, it gives what was tuned until then.

    Attributes:
        model: The model; of its nodes those of the main graph with constant FP32 weights are tuned.
        batch: The inputs, whose shapes the formulations are built for.
        candidates: Names of formulations to try beside the direct one; all by default.
        threads: Numbers of threads to try; one, and as many as ONNX Runtime takes by itself, by default.
        cache: A file of times that were measured on this device before; it is written anew in the end.
    """

    model: Model
    batch: Batch
    candidates: Collection[str] | None = None
    threads: Sequence[int] | None = None
    cache: str | Path | None = None
    partial: ClassVar[bool] = True

    def steps(self, rig: Rig[Bench]) -> Iterator[Tuned]:
        """What is known after each group of alike layers, and in the end of whole models too.

        Raises:
            VariantError: a candidate has no such name, or a number of threads or of seconds cannot be.
            ModelError: no layer can be tuned.
            ReadError: the timing cache is of another device.
            RunError, BuildError: ONNX Runtime refuses the model.
            Cancelled: stopped before the first layer was tuned.
        """
        bench, names, cache = rig.tool, self.candidates, self.cache
        wanted = (1, bench.threads) if self.threads is None else self.threads
        if names is not None and not _several(names):
            names = (str(names),)
        _checked(wanted, rig.allowance.seconds, names)
        if cache is not None and not isinstance(cache, (str, Path)):
            raise VariantError(f'Cannot keep times in "{cache}": it is no path. Choose cache="times.json".')
        known = timing_cache(cache, bench.device, bench.source) if cache is not None else None
        race = Race(rig, tuple(sorted({*wanted})), known)
        only = frozenset(names) if names is not None else None
        yield from _UnderWay(self.model, dict(self.batch), race, only).steps()


def _checked(threads: Sequence[int], budget_s: float, candidates: Collection[str] | None) -> None:
    if (
        not _several(threads)
        or not len(threads)
        or any(isinstance(t, bool) or not isinstance(t, int) or not 1 <= t <= _MOST_THREADS for t in threads)
    ):
        listed = ", ".join(map(str, threads)) if _several(threads) else threads
        raise VariantError(
            f'Cannot tune with "{listed}" threads: a number is at least 1, and at most {_MOST_THREADS}. '
            "Choose threads=(1, 2)."
        )
    if not isinstance(budget_s, (int, float)) or not 0 < budget_s < float("inf"):
        raise VariantError(f'Cannot tune in "{budget_s}" seconds: there is no such time. Choose budget_s=60.')
    known = dict.fromkeys(f.name for found in FORMULATIONS.values() for f in found)
    unknown = [
        c for c in (() if candidates is None else candidates) if not isinstance(c, str) or c not in known
    ]
    if unknown:
        listed = ", ".join(f'"{name}"' for name in known)
        raise VariantError(
            f'Cannot tune with formulation "{unknown[0]}": there is none of this name. Choose of {listed}.'
        )


def _several(given: object) -> bool:
    return isinstance(given, Collection) and not isinstance(given, (str, bytes))


@dataclasses.dataclass(eq=False)
class _UnderWay:
    """A tuning that runs."""

    model: Model
    batch: Batch
    race: Race
    candidates: frozenset[str] | None
    started: float = dataclasses.field(default_factory=time.monotonic)
    notes: list[str] = dataclasses.field(default_factory=list)
    #: Layers of the shapes of a tuned one, for which there was no time to see that they compute the same.
    unseen: int = 0

    @property
    def _rig(self) -> Rig[Bench]:
        return self.race.rig

    @property
    def _seconds(self) -> float:
        return self._rig.allowance.seconds

    @property
    def _used_up(self) -> str:
        """What of the allowance was used up, in words."""
        counted = self._rig.over and not self._rig.late
        return "its builds or runs were used up" if counted else f"the time of {self._seconds:g} s was over"

    def steps(self) -> Iterator[Tuned]:
        layers, inputs = self._layers()
        compared = _COMPARING * (time.monotonic() - self.started) / self._seconds
        kept = min(_MOST_FOR_WHOLE, max(_FOR_WHOLE, compared))
        groups: dict[str, list[WeightedNode]] = {}
        for layer in layers:
            groups.setdefault(layer.key, []).append(layer)
        costly = sorted(groups.values(), key=lambda g: -sum(layer.flops for layer in g))
        end = self.started + self._seconds * (1 - kept)
        found: dict[str, TunedLayer] = {}
        tuned, spent = 0, 0.0
        self._rig.phase("Tuning layers on the CPU", len(costly))
        for position, group in enumerate(costly):
            begun = time.monotonic()
            left = end - begun
            # One of fewer operations takes about as much less time than the one before.
            before = costly[position - 1][0].flops if position else 0
            expected = spent * min(1.0, group[0].flops / before) if before else 0.0
            if self._rig.cancelled() or (tuned and (left <= expected or self._rig.over)):
                break
            # Stopped within a group, those of it that are tuned are worth keeping.
            with contextlib.suppress(Cancelled):
                for made in self._group(group, inputs, max(0.2, left / (len(costly) - position)), end):
                    found[made.node] = made
            if self._rig.cancelled():
                tuned += group[0].node in found
                break
            spent = time.monotonic() - begun
            tuned += 1
            self._rig.advance()
            yield self._told(layers, found)
        if not found:
            self._rig.check("tuning")
        if tuned < len(costly):
            why = "it was stopped" if self._rig.cancelled() else self._used_up
            self.notes.append(
                f"{tuned} of {len(costly)} distinct layers, the costliest, were tuned before {why}"
            )
        if self.unseen:
            self.notes.append(
                f"layers of the same shapes as a tuned one: {self.unseen} not checked with their own weights before "
                f"the time of {self._seconds:g} s was over, and left as they are"
            )
        wholes = self._wholes(self._told(layers, found).layers, {layer.node: layer for layer in layers})
        self._remember()
        complete = tuned == len(costly) and not self.unseen and len(wholes) == len(self.race.threads)
        yield self._told(layers, found, wholes, complete=complete)

    def _told(
        self,
        layers: Sequence[WeightedNode],
        found: Mapping[str, TunedLayer],
        wholes: tuple[Whole, ...] = (),
        *,
        complete: bool = False,
    ) -> Tuned:
        return Tuned(
            tuple(found[layer.node] for layer in layers if layer.node in found),
            wholes,
            self._rig.tool.device,
            self._rig.tool.source,
            datetime.datetime.now(datetime.timezone.utc),
            time.monotonic() - self.started,
            complete,
            tuple(self.notes),
        )

    def _remember(self) -> None:
        """Write the cache, if there is one; what was tuned is told also where that cannot be."""
        if self.race.cache is not None:
            try:
                self.race.cache.save()
            except RtlabError as error:
                self.notes.append(f"times not kept: {error}")

    def _layers(self) -> tuple[list[WeightedNode], Outputs]:
        """The layers that can be tuned, and what each reads."""
        self._rig.check("tuning")
        self._rig.phase("Reading what the layers read")
        nodes = tunable(self.model)
        inputs = self._rig.tool.values(self.model, [n.inputs[0] for n in nodes], self.batch) if nodes else {}
        made = [(n, formulated(self.model, n, inputs[n.inputs[0]].shape)) for n in nodes]
        layers = [layer for _, layer in made if layer is not None]
        if not layers:
            raise ModelError(
                f'Cannot tune model "{self.model.name}": no convolution or product of its main graph has constant FP32 '
                "weights and a supported form. Choose the model before quantization."
            )
        if len(layers) < len(nodes):
            self.notes.append(
                f"{len(nodes) - len(layers)} layers have a form that is not tuned, such as 1-D or 3-D"
            )
        return layers, inputs

    def _group(
        self, group: list[WeightedNode], inputs: Outputs, seconds: float, latest: float
    ) -> Iterator[TunedLayer]:
        """Layers of one key: the first is timed, the others share its times once they are seen to compute the same."""
        first = group[0]
        trials = self.race.layer(first, inputs[first.data], self._offered(first), seconds, latest)
        timed = self._tuned(first, trials)
        yield timed
        best = (timed.best(count) for count in self.race.threads)
        sure = all(b is None or b.formulation == DIRECT for b in best)
        for layer in group[1:]:
            if not sure and time.monotonic() > latest:
                self.unseen += 1
                continue
            yield self._tuned(layer, self._same(layer, inputs[layer.data], timed), first.node)

    def _tuned(self, layer: WeightedNode, trials: tuple[Trial, ...], like: str = "") -> TunedLayer:
        most = max(self.race.threads)
        default = next(t for t in trials if t.formulation == DIRECT and t.threads == most)
        return TunedLayer(layer.node, layer.title, layer.key, layer.flops, trials, default, like)

    def _offered(self, layer: WeightedNode) -> list[Formulation]:
        only = self.candidates
        return [f for f in offered(layer) if f.name == DIRECT or only is None or f.name in only]

    def _same(self, layer: WeightedNode, data: NDArray[Any], timed: TunedLayer) -> tuple[Trial, ...]:
        """The times of another layer, for one with other weights; what would win is checked with its own."""
        known = {f.name: f for f in self._offered(layer)}
        trials = tuple(dataclasses.replace(t, error=None) for t in timed.trials)
        wanted: NDArray[Any] | None = None
        for name in dict.fromkeys(t.formulation for t in map(timed.best, self.race.threads) if t is not None):
            if name == DIRECT:
                continue
            if wanted is None:
                wanted = self.race.once(layer, known[DIRECT], data)
            entrant = Entrant(known[name], self.race.threads[0])
            same = entrant.judge(self.race.once(layer, known[name], data), wanted)
            trials = tuple(
                dataclasses.replace(t, error=entrant.error, ok=t.ok and same, note=entrant.note or t.note)
                if t.formulation == name
                else t
                for t in trials
            )
        return trials

    def _wholes(self, tuned: Sequence[TunedLayer], layers: Mapping[str, WeightedNode]) -> tuple[Whole, ...]:
        """Whole models as they are and tuned, in turn, for each number of threads."""
        if self._rig.cancelled():
            return ()
        self._rig.phase("Comparing whole models")
        try:
            made = {}
            for count in self.race.threads:
                chosen = _winners(tuned, count, layers)
                content = composed(self.model, self.batch, chosen).SerializeToString() if chosen else b""
                made[count] = tuple(chosen), content
            plain = composed(self.model, self.batch, {}).SerializeToString()
            found = self.race.wholes(self.batch, plain, made, self.started + self._seconds)
        except RtlabError as error:
            why = str(error)
        except (EncodeError, ValueError):
            why = "with transformed weights it is larger than the two gigabytes of one ONNX file."
        else:
            if len(found) < len(made):
                listed = ", ".join(str(w.threads) for w in found)
                self.notes.append(
                    f"the whole model was compared with {listed} threads only: the time was over"
                )
            return found
        if self._rig.cancelled():
            return ()
        # What its layers told is worth keeping.
        self.notes.append(f"the whole model was not compared: {why}")
        return ()


def _winners(
    tuned: Sequence[TunedLayer], threads: int, layers: Mapping[str, WeightedNode]
) -> dict[str, tuple[WeightedNode, Formulation]]:
    """The layers for which another formulation is clearly faster with so many threads."""
    chosen = {}
    for layer in tuned:
        best, direct = layer.best(threads), layer.direct(threads)
        if best is None or direct is None or best.formulation == DIRECT or not clearly(best, direct):
            continue
        own = layers[layer.node]
        chosen[layer.node] = own, next(f for f in offered(own) if f.name == best.formulation)
    return chosen
