"""What a notebook holds: ``Study`` and ``Result``, each method a line or two that asks the session or a question."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from rtlab import backends
from rtlab.analyses import panels
from rtlab.analyses.calibration import pairs as _pairs
from rtlab.analyses.calibration.observed_ranges import Calibration
from rtlab.analyses.calibration.pairs import PairUse
from rtlab.analyses.difference import compare_variants
from rtlab.analyses.difference.diff import Difference
from rtlab.analyses.fusion import map_nodes
from rtlab.analyses.fusion.words import explain
from rtlab.analyses.panel_context import PanelContext
from rtlab.analyses.variants.variations import list_variations
from rtlab.backends.capabilities import suggest_backends
from rtlab.backends.readers import build, recognise
from rtlab.core.facts import Ranked, Score
from rtlab.core.files import write
from rtlab.core.model import Model, load, make_empty_model
from rtlab.core.peaks import Peaks
from rtlab.core.stage import Stage, StageStatus
from rtlab.core.task import Task
from rtlab.errors import ReadError, RunError, VariantError, boundary, guard_methods
from rtlab.quantize.existing_qdq import find_quantized_nodes
from rtlab.study.recorded import collect_files, save_pasted_text
from rtlab.study.recorded import source as recorded_source
from rtlab.study.result import Result, make_result
from rtlab.study.session import Session
from rtlab.web import report
from rtlab.web.page.layers import layers_json
from rtlab.web.page.table import study_html

if TYPE_CHECKING:
    import onnx
    import plotly.graph_objects as go

    from rtlab.documents.answer import Answer
    from rtlab.web.explorer.explorer import Explorer
    from rtlab.web.explorer.graph import LinkedGraphs

__all__ = [
    "Calibration",
    "Ranked",
    "Result",
    "Score",
    "Stage",
    "StageStatus",
    "Study",
    "available",
    "explore",
    "read",
]


@guard_methods
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

    _handle = staticmethod(make_result)

    def __repr__(self) -> str:
        state = self._state
        return f"<Study {self.model.name}: {len(state.facts)} of {len(state.variants)} variants built>"

    def _repr_html_(self) -> str:
        return study_html(self.snapshot())

    def __getitem__(self, name: str) -> Result:
        return self._handle(self.facts_of(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self.variants)

    def __len__(self) -> int:
        return len(self.variants)

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
                f"Build it where a GPU is, with {suggest_backends(lambda c: c.opens)}."
            )
        return write(path, engine.plan, what="the engine", model=self.model)

    def save_build(self, name: str, path: str | Path) -> Path:
        """Write the build of a variant as one file of JSON, for ``read`` on a machine that has no builder.

        It holds the layers, what else the compiler told, times that were measured of this engine, and the structure of
        the model, so that it opens alone. No weights go along: names, shapes, single numbers, and integers that decide
        about shapes do.

        Raises:
            VariantError: the variant is not built.
            RtlabError: the file cannot be written, or is the one that the model was read from.
        """
        facts = self.facts_of(name)
        content = build.encode(
            facts.engine,
            words=facts.variant.id,
            source=self.model if self.model.nodes else None,
            graph=facts.prepared.model,
            # Where the engine cannot run here, the times are another one's.
            profile=facts.profile if facts.measured is facts.engine else None,
        )
        return write(path, content, what="the build", model=self.model)

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
        return compare_variants(self.facts_of(first), self.facts_of(second), gpu=gpu)

    def varied(self, name: str) -> dict[str, tuple[str, str]]:
        """What ``vary`` can do with a variant: by choice the label of a button, and why it cannot be had.

        Raises:
            VariantError: there is no such variant.
        """
        return list_variations(
            name, self._require_variant(name, "vary"), self.facts.get(name), find_quantized_nodes(self.model)
        )

    def pairs(self, name: str) -> tuple[PairUse, ...]:
        """Where each Q/DQ pair that the model brought along went in a variant's engine: absorbed, or a step of its own.

        Raises:
            VariantError: the variant is not built.
        """
        facts = self.facts_of(name)
        return _pairs.trace_pairs(self.model, map_nodes(facts), facts.engine)

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

    @boundary("answer the question")
    def ask(self, question: str, *, variant: str, baseline: str | None = None, **settings: str) -> Answer:
        """The answer to one question about a variant, such as "kernels": it shows itself in a notebook.

        ``frame()`` is its table for pandas, ``plain()`` all of it as JSON, ``noun`` the numbers as they are.

        Args:
            question: One of ``rtlab.analyses.panels``.
            variant: Its name.
            baseline: The variant that it is compared with, where that is asked.
            settings: Those of the question, as its panel has them.

        Raises:
            VariantError: there is no such variant or question.
            RtlabError: what it needs of the variant is not known.
        """
        other = None if baseline is None else self.facts_of(baseline)
        return panels.ask(question, PanelContext(self.snapshot(), self.facts_of(variant), other, settings))

    @boundary("show the Explorer")
    def explore(
        self,
        *,
        baseline: str | None = None,
        height: int | None = None,
        files: str | Path | Iterable[str | Path] | None = None,
    ) -> Explorer:
        """The Explorer on this study's variants.

        Args:
            baseline: The variant that others are compared with; the first one by default.
            height: In pixels; by default as high as the window has room for.
            files: Folders whose files the page may open by their paths: by default that of the model and the current
                one. A page that is served to others opens no other file; a cell opens any.
        """
        from rtlab.web.explorer.explorer import Explorer

        return Explorer(self, baseline=baseline, height=height, files=files)

    @boundary("draw the panel")
    def figure(
        self, question: str, *, variant: str, baseline: str | None = None, index: int = 0, **settings: str
    ) -> go.Figure:
        """A chart of a panel as a ``plotly.graph_objects.Figure``: ``study.figure("memory", variant="int8")``.

        It has the data of the page, and is restyled and written as any of Plotly's: ``figure.update_layout(...)``,
        ``figure.write_html("memory.html")``; ``figure.write_image("memory.svg")`` takes Kaleido and Chromium.

        Args:
            question: One of ``rtlab.analyses.panels``, or ``layers`` or ``errors``, the charts of the page.
            variant: Its name.
            baseline: The variant that it is compared with, for a panel that compares.
            index: Which chart, of a panel that has several.
            settings: Those of the question, as its panel has them; ``order="time"`` for ``layers``.

        Raises:
            VariantError: there is no such variant, question or chart.
        """
        from rtlab.web.report.figure import plotly_figure

        other = None if baseline is None else self.facts_of(baseline)
        return plotly_figure(
            question, PanelContext(self.snapshot(), self.facts_of(variant), other, settings), index=index
        )

    @boundary("write the report")
    def to_html(
        self,
        path: str | Path,
        *,
        steps: Iterable[Mapping[str, Any]] = (),
        baseline: str | None = None,
    ) -> Path:
        """Write the Explorer on all built variants as one HTML file, which needs no kernel and no network.

        Args:
            path: The file.
            steps: A presentation, which the report plays as a slide show: ``explorer.steps``.
            baseline: The variant that others are compared with; the first in fp32 by default.

        Raises:
            VariantError: no variant is built, or ``baseline`` is not.
            RtlabError: the file cannot be written there, or one of ``steps`` is none.
        """
        return report.write(self.snapshot(), path, steps=steps, baseline=baseline)

    @boundary("write the report")
    def to_markdown(self, path: str | Path, *, baseline: str | None = None) -> Path:
        """Write what matters of all built variants as Markdown, for an issue or a pull request.

        Raises:
            VariantError: no variant is built, or ``baseline`` is not.
            RtlabError: the file cannot be written there.
        """
        return report.write_markdown(self.snapshot(), path, baseline=baseline)

    @boundary("write the report")
    def to_json(self, path: str | Path, *, baseline: str | None = None) -> Path:
        """Write all that is known of all built variants as one JSON object: see ``rtlab.web.report.whole``.

        Raises:
            VariantError: no variant is built, or ``baseline`` is not.
            RtlabError: the file cannot be written there.
        """
        return report.write_json(self.snapshot(), path, baseline=baseline)

    def graph(self, name: str, other: str | None = None, *, height: int = 480) -> LinkedGraphs:
        """The linked graphs of the model and of one built variant, or of two, without the rest of the Explorer."""
        from rtlab.web.explorer.graph import LinkedGraphs

        return LinkedGraphs(
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

    The fp32 variant is built at once, so that there is something to see. The path of an engine's file, such as a build
    that ``Study.save_build`` wrote, is opened as ``read`` does. ``height`` is in pixels; None takes what the window has
    room for.
    """
    if model is None:
        from rtlab import samples

        sample = samples.load("digits_inception")
        model, data, task = sample.model, sample.calibration, sample.task
    if isinstance(model, (str, Path)) and recognise.holds_engine(Path(model)):
        if data is not None or task is not None:
            raise ReadError(
                f'Cannot open "{Path(model).name}" with samples: it is a file of an engine, without a model to run '
                "them on. Give it without data and task, or rtlab.read(..., model=...) with the model beside it."
            )
        return read(model).explore(height=height)
    study = Study(model, data=data, task=task)
    study.add("fp32")
    return study.explore(height=height).run()


def read(
    *files: str | Path,
    model: Model | str | Path | None = None,
    name: str = "engine",
    text: str | bytes | None = None,
    **kwargs: Any,
) -> Study:
    """Read an engine that another machine built, with its ONNX model or without.

    Args:
        files: Files whose kind is found by what is in them, an ONNX model among them.
        model: The ONNX model, where it is not among the files.
        name: What the variant is called.
        text: What was copied from somewhere in place of a file, as ``Study.read`` takes it.
        kwargs: Files by kind and options, as ``Study.read`` takes them.

    Returns:
        A study with that one variant: ``rtlab.read(...).explore()`` shows it.

    Raises:
        ReadError: a file is damaged, or files belong to different engines.
        ModelError: the model cannot be loaded.
    """
    options: dict[str, Any] = {
        k: kwargs.pop(k) for k in ("inputs", "optimization_profile", "backend") if k in kwargs
    }
    with save_pasted_text(text) as copied:
        files_by_kind = collect_files((*files, *copied), kwargs)
        if set(files_by_kind) == {"model"}:
            raise ReadError(
                f'Cannot read an engine from "{files_by_kind["model"].name}": it is an ONNX model. Give the '
                'engine\'s files beside it, such as layers="layers.json"; rtlab.explore opens a model alone.'
            )
        onnx_file = files_by_kind.pop("model", None)
        source = model if model is not None else onnx_file
        if source is not None and onnx_file is not None and source is not onnx_file:
            files_by_kind["model"] = onnx_file
        if source is None:
            source = recorded_source(files_by_kind) or make_empty_model()
        elif not isinstance(source, Model):
            source = load(source, weights=False)
        study = Study(source)
        study.read(name, **(options | files_by_kind))
    return study


def available() -> Mapping[str, Any]:
    """Backends by name with version, or with the reason why one is missing."""
    return backends.available()
