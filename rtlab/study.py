"""What a notebook holds: ``Study`` and ``Result``, each method a line or two that asks the session or a question."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from rtlab import backends, questions, report
from rtlab.backends.roles import advice
from rtlab.core.answers import kept
from rtlab.core.buildlog import BuildLog
from rtlab.core.engine import Engine
from rtlab.core.facts import Facts, Ranked, Score
from rtlab.core.files import write
from rtlab.core.finding import Finding
from rtlab.core.model import Model, absent, load
from rtlab.core.peaks import Peaks
from rtlab.core.prepared import Prepared
from rtlab.core.ranges import Ranges
from rtlab.core.stage import Stage, Standing
from rtlab.core.task import Task
from rtlab.core.trace import Outputs, Profile
from rtlab.core.variant import Variant
from rtlab.errors import ReadError, RunError, VariantError, boundary
from rtlab.questions.accuracy.errors import Accuracy
from rtlab.questions.calibration import pairs as _pairs
from rtlab.questions.calibration.pairs import PairUse
from rtlab.questions.calibration.seen import Calibration
from rtlab.questions.difference.diff import Difference, Side
from rtlab.questions.engine.breakdown import Slice, Transition
from rtlab.questions.fusion.words import explain
from rtlab.questions.memory.plan import MemoryPlan
from rtlab.questions.recurrence.fused import Fused
from rtlab.questions.reformats.reasons import Reformat
from rtlab.questions.roofline.roofs import Roofline
from rtlab.questions.schedule.streams import Schedule
from rtlab.questions.timing.times import Shared, Timing
from rtlab.questions.variants.variations import offered
from rtlab.relation.coverage import Coverage
from rtlab.relation.mapping import Mapping as NodeMapping
from rtlab.session import Session
from rtlab.session.recorded import gathered
from rtlab.view.layers import layers_json
from rtlab.view.table import study_html

if TYPE_CHECKING:
    import onnx
    from pandas import DataFrame

    from rtlab.explorer.explorer import Explorer
    from rtlab.explorer.graph import Graph

__all__ = [
    "Calibration",
    "Ranked",
    "Result",
    "Score",
    "Stage",
    "Standing",
    "Study",
    "available",
    "explore",
    "read",
]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Result:
    """Everything known of one variant: its facts, and what can be asked of them.

    ``source`` is the model that the study is of; ``engine`` is the picture, related to it by ``mapping``; ``measured``
    is the engine that ran here, related by ``measured_mapping``; ``ranges`` is what the calibrator saw, and
    ``random_scales`` says that it was random input. ``timing``, ``accuracy`` and ``score`` are None where they are not
    known; ``stages`` tells how far each came, and why one is missing. ``profile`` holds the samples behind ``timing``.
    ``recorded`` says that the engine was read from files of another machine; ``told`` is the build log that was among
    them, ``outputs`` the tensors.
    """

    facts: Facts

    def __repr__(self) -> str:
        return f"<Result{repr(self.facts).removeprefix('<Facts')}"

    @property
    def name(self) -> str:
        """What it is called in the study."""
        return self.facts.name

    @property
    def variant(self) -> Variant:
        """What was chosen."""
        return self.facts.variant

    @property
    def source(self) -> Model:
        """The model that the study is of."""
        return self.facts.source

    @property
    def prepared(self) -> Prepared:
        """That model with the precision expressed in its graph."""
        return self.facts.prepared

    @property
    def engine(self) -> Engine:
        """What the compiler made of it."""
        return self.facts.engine

    @property
    def measured(self) -> Engine | None:
        """The engine that was timed here; None where none was."""
        return self.facts.measured

    @property
    def profile(self) -> Profile | None:
        """The samples behind ``timing``."""
        return self.facts.profile

    @property
    def score(self) -> Score | None:
        """The task's metric; None where it is not known."""
        return self.facts.score

    @property
    def ranges(self) -> Ranges | None:
        """What the calibrator saw; None where none did."""
        return self.facts.ranges

    @property
    def random_scales(self) -> bool:
        """Whether the scales rest on random input."""
        return self.facts.random_scales

    @property
    def recorded(self) -> bool:
        """Whether the engine was read from files of another machine."""
        return self.facts.recorded

    @property
    def told(self) -> BuildLog | None:
        """The build log that was among those files."""
        return self.facts.told

    @property
    def outputs(self) -> Outputs | None:
        """The tensors that were among them."""
        return self.facts.outputs

    @property
    def stages(self) -> Mapping[Stage, Standing]:
        """How far each stage came, and why one is missing."""
        return self.facts.stages

    @property
    def missing(self) -> tuple[Standing, ...]:
        """Stages in which there is more to find out, which ``Study.measure`` does, with what is in the way."""
        return self.facts.missing

    @property
    def mapping(self) -> NodeMapping:
        """Which nodes of the source became which layers of the engine, and how we know."""
        return questions.fusion.mapping(self.facts)

    @property
    def measured_mapping(self) -> NodeMapping | None:
        """The same of the engine that was measured; None where none was."""
        return questions.fusion.measured(self.facts)

    @property
    def coverage(self) -> Coverage:
        """How much of the engine the mapping explains."""
        return questions.fusion.coverage(self.facts)

    @property
    def unmapped(self) -> tuple[tuple[str, str], ...]:
        """Nodes without a layer with the reason, in graph order."""
        return questions.fusion.unmapped(self.facts)

    @property
    def log(self) -> BuildLog | None:
        """What the builder told of the build: passes, decisions, tactics, memory; None where it left no log.

        Raises:
            ReadError: nothing in it tells of a build.
        """
        return questions.build.log(self.facts)

    @property
    def timing(self) -> Timing | None:
        """Times of the layers of the engine that was measured; None where none was."""
        return questions.timing.of(self.facts)

    @property
    def own_times(self) -> Timing | None:
        """The times of the engine's own layers; None where they are those of another engine, or there are none."""
        return questions.timing.own(self.facts)

    @property
    def layer_times(self) -> Mapping[str, Shared]:
        """Times on the layers of the engine, by layer id; empty where nothing was measured.

        An engine that ran itself shows its own times. Otherwise they are joined by the nodes of the prepared model,
        which both engines were built from: a layer that only quantizes the input of a convolution gets the time of
        that quantization, not of the convolution.
        """
        return questions.timing.on_layers(self.facts)

    @property
    def accuracy(self) -> Accuracy | None:
        """Errors of every compared value against the source in fp32; None where none was compared."""
        return questions.accuracy.of(self.facts)

    @property
    def estimate(self) -> Roofline | None:
        """The engine on the GPU that it was built for, estimated; None where there is no such GPU, or no sizes.

        It comes before what a CPU measured: the CPU runs other kernels, and emulates some precisions.
        """
        return questions.roofline.estimate(self.facts)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What is worth changing about the engine, the most costly first."""
        return questions.findings.of(self.facts)

    def roofline(self, gpu: str | Peaks | None = None, *, batch: int | None = None) -> Roofline:
        """Every layer under the roofs of a processor: what bounds it, how far from that it is, an estimate of its time.

        Args:
            gpu: A name of the table, or ``rtlab.Peaks`` of one's own; by default the engine's own GPU, or one of its
                target where it was only built.
            batch: Samples in an inference, where they are not the engine's own.

        Raises:
            VariantError: the processor is not known.
            ModelError: a dimension has no size.
        """
        return questions.roofline.of(self.facts, gpu, batch=batch)

    def memory(self, *, batch: int | None = None, one_stream: bool = False) -> MemoryPlan:
        """Where the activations of the engine could lie in one piece of memory: an estimate from their lifetimes.

        Args:
            batch: Samples in an inference, where they are not the engine's own.
            one_stream: As if all layers ran one after the other.

        Raises:
            VariantError: the engine has no tensors, or a size is not known.
        """
        return questions.memory.of(self.facts, batch=batch, one_stream=one_stream)

    def schedule(self, gpu: str | Peaks | None = None) -> Schedule:
        """When each layer runs on which stream, and who waits for whom.

        Args:
            gpu: Durations are estimated for it; by default the engine's own measured times, else every layer alike.

        Raises:
            VariantError: the processor is not known.
            ModelError: a dimension has no size.
        """
        return questions.schedule.of(self.facts, gpu)

    def side(self, gpu: str | Peaks | None = None) -> Side:
        """The variant in a comparison: the engine that was timed, else the one that was built.

        With a GPU it is the engine that was built, with times that are estimated for it.

        Raises:
            VariantError: the processor is not known.
            ModelError: a dimension has no size.
        """
        return questions.difference.side(self.facts, gpu)

    def recurrences(self) -> tuple[Fused, ...]:
        """What became of each recurrent node: gates merged, input products hoisted, steps unrolled; inferred."""
        return questions.recurrence.of(self.facts)

    def kinds(self) -> tuple[Slice, ...]:
        """Layers and time by the compiler's kind of layer, the slowest first."""
        return questions.engine.kinds(self.facts)

    def precisions(self) -> tuple[Slice, ...]:
        """Layers and time by the narrowest type that a layer touches, the slowest first."""
        return questions.engine.precisions(self.facts)

    def transitions(self) -> tuple[Transition, ...]:
        """How many layers read one precision and write another, with their time."""
        return questions.engine.transitions(self.facts)

    def reformats(self) -> tuple[Reformat, ...]:
        """Layers that only change a type or a memory layout: why they are there, and how to be rid of them."""
        return questions.reformats.of(self.facts)

    def table(self) -> DataFrame:
        """One row per layer in order of execution: see ``rtlab.questions.table.dataframe``."""
        # pandas takes a while to import.
        from rtlab.questions.table.dataframe import layers_frame

        return layers_frame(self.facts, self.source)


@kept
def _result(facts: Facts) -> Result:
    return Result(facts)


class Study(Session[Result]):
    """One model, several variants.

    Args:
        model: A loaded model, or what ``rtlab.load`` accepts.
        data: Samples for calibration and comparison, whatever ``CalibrationData.of`` takes; 64 random ones by
            default.
        task: Held-out samples with labels, for the task's accuracy.
        limits: Bounds of each build.
        stride: Of large activation maps every how many elements enter a histogram; 1 counts all of them, and takes
            longer. The least and the largest value are exact whatever it is.
    """

    def __repr__(self) -> str:
        kept = self._kept
        return f"<Study {self.model.name}: {len(kept.facts)} of {len(kept.variants)} variants built>"

    def _repr_html_(self) -> str:
        return study_html(self.snapshot())

    def __getitem__(self, name: str) -> Result:
        return self._handle(self.facts_of(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self.variants)

    def __len__(self) -> int:
        return len(self.variants)

    def _handle(self, facts: Facts) -> Result:
        return _result(facts)

    @property
    def results(self) -> Mapping[str, Result]:
        """What was built or read, by name, at this moment."""
        return MappingProxyType({name: self._handle(facts) for name, facts in self.facts.items()})

    def save_engine(self, name: str, path: str | Path) -> Path:
        """Write a variant's serialized engine, for ``open`` and for any TensorRT of its release on its GPU.

        Raises:
            VariantError: the variant is not built.
            RunError: its backend kept no serialized engine, or the file cannot be written.
        """
        engine = self.facts_of(name).engine
        if engine.plan is None:
            raise RunError(
                f'Cannot save the engine of "{name}": backend "{engine.backend}" kept no serialized engine. '
                f"Build it where a GPU is, with {advice(lambda c: c.opens)}."
            )
        return write(path, engine.plan, what="the engine", model=self.model)

    def difference(self, first: str, second: str, *, gpu: str | Peaks | None = None) -> Difference:
        """Where the time went from one variant to another, by groups of ONNX nodes.

        Args:
            first: The variant before.
            second: The variant after.
            gpu: In place of what was measured, times of both engines are estimated for this GPU; ``"target"`` takes
                for each one of the GPUs that it was built for.

        Raises:
            VariantError: one of them is not built, or the GPU is not known.
            ModelError: a dimension has no size.
        """
        return questions.difference.of(self.facts_of(first), self.facts_of(second), gpu=gpu)

    def varied(self, name: str) -> dict[str, tuple[str, str]]:
        """What ``vary`` can do with a variant: by choice the label of a button, and why it cannot be had.

        Raises:
            VariantError: there is no such variant.
        """
        return offered(name, self._known(name, "vary"), self.facts.get(name))

    def pairs(self, name: str) -> tuple[PairUse, ...]:
        """Where each Q/DQ pair that the model brought along went in a variant's engine: absorbed, or a step of its own.

        Raises:
            VariantError: the variant is not built.
        """
        facts = self.facts_of(name)
        return _pairs.pairs(self.model, questions.fusion.mapping(facts), facts.engine)

    def export_layers(self, name: str, path: str | Path) -> Path:
        """Write the layers of a built variant as TensorRT 11's inspector would, for ``read`` elsewhere.

        Raises:
            VariantError: the variant is not built, or its files list no layers.
            RtlabError: the file cannot be written, or is the one that the model was read from.
        """
        engine = self.facts_of(name).engine
        if not engine.layers:
            raise VariantError(
                f'Cannot export the layers of "{name}": its files list none. Read it with a layer file, from trtexec '
                "--exportLayerInfo."
            )
        text = json.dumps(layers_json(engine), indent=1, ensure_ascii=False)
        return write(path, text.encode("utf-8", "replace"), what="the layers", model=self.model)

    @boundary("show the Explorer")
    def explore(self, *, baseline: str | None = None, height: int | None = None) -> Explorer:
        """The Explorer on this study's variants, ``height`` pixels high or as high as the window has room for."""
        from rtlab.explorer.explorer import Explorer

        return Explorer(self, baseline=baseline, height=height)

    @boundary("write the report")
    def to_html(self, path: str | Path) -> Path:
        """Write the Explorer on all built variants as one HTML file, which needs no kernel and no network.

        Raises:
            VariantError: no variant is built.
            RtlabError: the file cannot be written there.
        """
        return report.write(self.snapshot(), path)

    def graph(self, name: str, other: str | None = None, *, height: int = 480) -> Graph:
        """The linked graphs of the model and of one built variant, or of two, without the rest of the Explorer."""
        from rtlab.explorer.graph import Graph

        return Graph(
            self.snapshot(), self.facts_of(name), self.facts_of(other) if other else None, height=height
        )

    def explain(self, node: str, *, variant: str) -> str:
        """In words: which layers a node became and how we know, or why it has none."""
        return explain(self.facts_of(variant), self.model, node)


def explore(
    model: Model | str | Path | bytes | onnx.ModelProto | None = None,
    *,
    data: Any = None,
    task: Task | None = None,
    height: int | None = None,
) -> Explorer:
    """Open the Explorer on a model; without one, on the first sample with its data and task.

    The fp32 variant is built at once, so that there is something to see. ``height`` is in pixels; None takes what the
    window has room for.
    """
    if model is None:
        from rtlab import samples

        sample = samples.load("digits_inception")
        model, data, task = sample.model, sample.calibration, sample.task
    study = Study(model, data=data, task=task)
    study.add("fp32")
    return study.explore(height=height).run()


def read(
    *files: str | Path, model: Model | str | Path | None = None, name: str = "engine", **given: Any
) -> Study:
    """Read an engine that another machine built, with its ONNX model or without.

    Args:
        files: Files whose kind is found by what is in them, an ONNX model among them.
        model: The ONNX model, where it is not among the files.
        name: What the variant is called.
        given: Files by kind and options, as ``Study.read`` takes them.

    Returns:
        A study with that one variant: ``rtlab.read(...).explore()`` shows it.

    Raises:
        ReadError: a file is damaged, or files belong to different engines.
        ModelError: the model cannot be loaded.
    """
    options: dict[str, Any] = {
        k: given.pop(k) for k in ("inputs", "optimization_profile", "backend") if k in given
    }
    found = gathered(files, given)
    if set(found) == {"model"}:
        raise ReadError(
            f'Cannot read an engine from "{found["model"].name}": it is an ONNX model. Give the engine\'s files beside '
            'it, such as layers="layers.json"; rtlab.explore opens a model alone.'
        )
    onnx_file = found.pop("model", None)
    source = model if model is not None else onnx_file
    if source is not None and onnx_file is not None and source is not onnx_file:
        found["model"] = onnx_file
    if source is None:
        source = absent()
    elif not isinstance(source, Model):
        source = load(source, weights=False)
    study = Study(source)
    study.read(name, **(options | found))
    return study


def available() -> Mapping[str, Any]:
    """Backends by name with version, or with the reason why one is missing."""
    return backends.available()
