"""Auto-tuning on the CPU: each layer is timed in all formulations, and the fastest form a model that is timed."""

from __future__ import annotations

import dataclasses
import datetime
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import ClassVar

from google.protobuf.message import EncodeError

from rtlab.core.arrays import Batch
from rtlab.core.budget import WorkContext
from rtlab.core.model import Model
from rtlab.core.phrases import quote_names
from rtlab.core.trace import Outputs
from rtlab.core.validation import validate_integer
from rtlab.errors import Cancelled, ModelError, RtlabError, VariantError
from rtlab.experiments.benchmark import Benchmark, BenchmarkRunner
from rtlab.formulations import (
    DIRECT,
    FORMULATIONS,
    Formulation,
    WeightedNode,
    compose_model,
    create_weighted_node,
    find_tunable_nodes,
    list_formulations,
)
from rtlab.formulations.trial import ModelTrial, TunedLayer, TunedModel, is_clearly_faster

#: The part of the time that is kept for whole models.
_MODEL_SHARE = 0.25
#: ONNX Runtime starts as many as it is told, and the machine stands still.
_MOST_THREADS = 1024


@dataclasses.dataclass(frozen=True)
class CpuTuning:
    """Tune convolutions and products of a model for one batch on this CPU.

    The costliest layers come first; those of the same operator, shapes and attributes are timed once. A formulation
    that differs from the direct one by more than rounding is refused. Those that are faster by more than noise form a
    model that is compared with the original. The seconds of the budget are shared among layers and whole models.

    Attributes:
        model: The model; nodes of the main graph with constant FP32 weights are tuned.
        batch: The inputs, whose shapes the formulations are built for.
        candidates: Names of formulations to try beside the direct one; all by default.
        threads: Numbers of threads; by default one, and the default of ONNX Runtime.
    """

    model: Model
    batch: Batch
    candidates: Collection[str] | None = None
    threads: Sequence[int] | None = None
    partial: ClassVar[bool] = True

    def steps(self, context: WorkContext[BenchmarkRunner]) -> Iterator[TunedModel]:
        """The result after each group of alike layers, and in the end of whole models too.

        Raises:
            VariantError: a candidate has no such name, or a number of threads or of seconds cannot be.
            ModelError: no layer can be tuned.
            RunError, BuildError: ONNX Runtime refuses the model.
            Cancelled: stopped before the first layer was tuned.
        """
        budget_s = context.budget.seconds
        if not isinstance(budget_s, (int, float)) or not 0 < budget_s < float("inf"):
            raise VariantError(
                f'Cannot tune in "{budget_s}" seconds: there is no such time. Choose budget_s=60.'
            )
        formulation_names = [f.name for f in FORMULATIONS["Conv"]]
        if unknown := [c for c in self.candidates or () if c not in formulation_names]:
            raise VariantError(
                f'Cannot tune with formulation "{unknown[0]}": there is none of this name. Choose of '
                f"{quote_names(formulation_names)}."
            )
        threads = {
            validate_integer(t, "Cannot tune with", "number of threads", most=_MOST_THREADS)
            for t in self.threads or (1, context.tool.threads)
        }
        benchmark = Benchmark(context, tuple(sorted(threads)))
        yield from _TuningState(self.model, dict(self.batch), benchmark, context, self.candidates).steps()


@dataclasses.dataclass(eq=False)
class _TuningState:
    """A tuning that runs."""

    model: Model
    batch: Batch
    benchmark: Benchmark
    context: WorkContext[BenchmarkRunner]
    candidates: Collection[str] | None
    started: float = dataclasses.field(default_factory=time.monotonic)
    notes: list[str] = dataclasses.field(default_factory=list)

    def steps(self) -> Iterator[TunedModel]:
        layers, inputs = self._collect_layers()
        groups: dict[str, list[WeightedNode]] = {}
        for layer in layers:
            groups.setdefault(layer.key, []).append(layer)
        costly = sorted(groups.values(), key=lambda g: -sum(layer.flops for layer in g))
        end = self.started + self.context.budget.seconds * (1 - _MODEL_SHARE)
        tuned_layers: dict[str, TunedLayer] = {}
        tuned_count = 0
        self.context.phase("Tuning layers on the CPU", len(costly))
        for position, group in enumerate(costly):
            remaining = end - time.monotonic()
            if tuned_count and (remaining <= 0 or self.context.is_exhausted):
                break
            seconds = max(0.2, remaining / (len(costly) - position))
            try:
                self.context.check("tuning")
                tuned_layers |= self._tune_group(group, inputs, seconds, end)
            except Cancelled:
                if not tuned_layers:
                    raise
                break
            tuned_count += 1
            self.context.advance()
            yield self._make_record(layers, tuned_layers)
        if tuned_count < len(costly):
            over = f"the time of {self.context.budget.seconds:g} s was over"
            why = "it was stopped" if self.context.is_cancelled() else over
            self.notes.append(
                f"{tuned_count} of {len(costly)} distinct layers, the costliest, were tuned before {why}"
            )
        wholes = self._compare_models(
            self._make_record(layers, tuned_layers).layers, {layer.node: layer for layer in layers}
        )
        complete = tuned_count == len(costly) and len(wholes) == len(self.benchmark.threads)
        yield self._make_record(layers, tuned_layers, wholes, complete=complete)

    def _make_record(
        self,
        layers: Sequence[WeightedNode],
        tuned_layers: Mapping[str, TunedLayer],
        wholes: tuple[ModelTrial, ...] = (),
        *,
        complete: bool = False,
    ) -> TunedModel:
        return TunedModel(
            tuple(tuned_layers[layer.node] for layer in layers if layer.node in tuned_layers),
            wholes,
            self.context.tool.device,
            self.context.tool.source,
            datetime.datetime.now(datetime.timezone.utc),
            time.monotonic() - self.started,
            complete,
            tuple(self.notes),
        )

    def _collect_layers(self) -> tuple[list[WeightedNode], Outputs]:
        """The layers that can be tuned, and what each reads."""
        self.context.check("tuning")
        self.context.phase("Reading what the layers read")
        nodes = find_tunable_nodes(self.model)
        inputs = (
            self.context.tool.values(self.model, [n.inputs[0] for n in nodes], self.batch) if nodes else {}
        )
        node_layers = [(n, create_weighted_node(self.model, n, inputs[n.inputs[0]].shape)) for n in nodes]
        layers = [layer for _, layer in node_layers if layer is not None]
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

    def _tune_group(
        self, group: list[WeightedNode], inputs: Outputs, seconds: float, latest: float
    ) -> dict[str, TunedLayer]:
        """Layers of one key: the first is timed, the others share its times."""
        first, only = group[0], self.candidates
        formulations = [
            f for f in list_formulations(first) if f.name == DIRECT or only is None or f.name in only
        ]
        trials = self.benchmark.time_layer(first, inputs[first.data], formulations, seconds, latest)
        most = max(self.benchmark.threads)
        default = next(t for t in trials if t.formulation == DIRECT and t.threads == most)
        shared_trials = tuple(dataclasses.replace(t, error=None) for t in trials)
        timed = TunedLayer(first.node, first.title, first.key, trials, default)
        return {
            layer.node: timed
            if layer is first
            else TunedLayer(layer.node, layer.title, layer.key, shared_trials, default, first.node)
            for layer in group
        }

    def _compare_models(
        self, tuned_layers: Sequence[TunedLayer], layers: Mapping[str, WeightedNode]
    ) -> tuple[ModelTrial, ...]:
        """Whole models as they are and tuned, in turn, for each number of threads."""
        if self.context.is_cancelled():
            return ()
        self.context.phase("Comparing whole models")
        try:
            tuned_models = {}
            for count in self.benchmark.threads:
                winners = _select_winners(tuned_layers, count, layers)
                content = (
                    compose_model(self.model, self.batch, winners).SerializeToString() if winners else b""
                )
                tuned_models[count] = tuple(winners), content
            plain = compose_model(self.model, self.batch, {}).SerializeToString()
            comparisons = self.benchmark.compare_models(
                self.batch, plain, tuned_models, self.started + self.context.budget.seconds
            )
        except RtlabError as error:
            why = str(error)
        except (EncodeError, ValueError):
            why = "with transformed weights it is larger than the two gigabytes of one ONNX file."
        else:
            if len(comparisons) < len(tuned_models):
                thread_text = ", ".join(str(w.threads) for w in comparisons)
                self.notes.append(f"the whole model was compared with {thread_text} threads only: timed out")
            return comparisons
        if self.context.is_cancelled():
            return ()
        # What its layers told is worth keeping.
        self.notes.append(f"the whole model was not compared: {why}")
        return ()


def _select_winners(
    tuned_layers: Sequence[TunedLayer], threads: int, layers: Mapping[str, WeightedNode]
) -> dict[str, tuple[WeightedNode, Formulation]]:
    """The layers for which another formulation is clearly faster with so many threads."""
    winners = {}
    for layer in tuned_layers:
        best, direct = layer.best(threads), layer.direct(threads)
        if (
            best is None
            or direct is None
            or best.formulation == DIRECT
            or not is_clearly_faster(best, direct)
        ):
            continue
        weighted_node = layers[layer.node]
        winners[layer.node] = (
            weighted_node,
            next(f for f in list_formulations(weighted_node) if f.name == best.formulation),
        )
    return winners
