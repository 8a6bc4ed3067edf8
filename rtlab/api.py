"""What a notebook uses: ``Study`` and the functions beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rtlab import backends
from rtlab.analyses.calibration.observed_ranges import Calibration
from rtlab.core.facts import Ranked, Score
from rtlab.core.model import Model, load, make_empty_model
from rtlab.core.stage import Stage, StageStatus
from rtlab.core.task import Task
from rtlab.errors import ReadError, RtlabError, boundary, guard_methods
from rtlab.study.recorded import collect_files, save_pasted_text
from rtlab.study.recorded import source as recorded_source
from rtlab.study.result import Result
from rtlab.study.session import Session
from rtlab.web.page.table import study_html

if TYPE_CHECKING:
    import onnx
    import plotly.graph_objects as go

    from rtlab.web.explorer.explorer import Explorer
    from rtlab.web.explorer.widget import LinkedGraphs

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
    "open",
    "read",
]


@guard_methods
class Study(Session):
    """One model, several variants: a mapping from the names of those that were built or read to their results.

    All else is in ``state``. ``accuracy``, ``fusion``, ``tuning`` and ``calibration`` are namespaces of methods.

    Args:
        model: A loaded model, or what ``rtlab.load`` accepts.
        data: Samples for calibration and comparison, whatever ``CalibrationData.of`` takes; 64 random ones by
            default.
        task: Held-out samples with labels, for the task's accuracy.
        limits: Bounds of each build.
        stride: Of large activation maps every how many elements enter a histogram; 1 counts all of them, and takes
            longer. The least and the largest value are always exact.
    """

    def _repr_html_(self) -> str:
        return study_html(self.state)

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
            height: In pixels; by default the height of the window.
            files: Folders whose files the page may open by their paths: by default that of the model and the current
                one. A page that is served to others opens no other file; a cell opens any.

        >>> study.explore(baseline="fp32")
        <Explorer tiny: 3 variants>
        """
        from rtlab.web.explorer.explorer import Explorer

        return Explorer(self, baseline=baseline, height=height, files=files)

    @boundary("draw the panel")
    def figure(
        self, question: str, *, variant: str, baseline: str | None = None, index: int = 0, **settings: str
    ) -> go.Figure:
        """A chart of a panel as a ``plotly.graph_objects.Figure``; to write it as an image takes Kaleido and Chromium.

        Args:
            question: One of ``rtlab.analyses.panels``, or ``layers`` or ``errors``, the charts of the page.
            variant: Its name.
            baseline: The variant that it is compared with, for a panel that compares.
            index: Which chart, of a panel that has several.
            settings: Those of the question, as its panel has them; ``order="time"`` for ``layers``.

        Raises:
            VariantError: there is no such variant, question or chart.

        >>> study.figure("memory", variant="fp16").layout.title.text is not None
        True
        """
        from rtlab.web.report.html import plotly_figure

        return plotly_figure(question, self._panel_context(variant, baseline, settings), index=index)

    @boundary("write the report")
    def report(
        self, path: str | Path, *, steps: Iterable[Mapping[str, Any]] = (), baseline: str | None = None
    ) -> Path:
        """Write all built variants to a file: HTML, Markdown or JSON, by its suffix.

        ``.html`` is the Explorer, which needs no kernel and no network; ``.md`` what matters, for an issue or a pull
        request; ``.json`` all that is known, for programs: see ``rtlab.web.page.document``.

        Args:
            path: The file.
            steps: A presentation, which the HTML plays as a slide show: ``explorer.steps``.
            baseline: The variant that others are compared with; the first in fp32 by default.

        Raises:
            VariantError: no variant is built, or ``baseline`` is not.
            RtlabError: the file cannot be written there, its suffix is none of these, or one of ``steps`` is none.

        >>> study.report("report.md").name
        'report.md'
        """
        from rtlab.web.report.html import write_html, write_json, write_markdown

        match Path(path).suffix.lower():
            case ".html" | ".htm":
                return write_html(self.state, path, steps=steps, baseline=baseline)
            case ".md" | ".markdown":
                return write_markdown(self.state, path, baseline=baseline)
            case ".json":
                return write_json(self.state, path, baseline=baseline)
        raise RtlabError(
            f'Cannot write the report to "{path}": its suffix tells no kind of report. Choose .html, .md or .json.'
        )

    def graph(self, name: str, other: str | None = None, *, height: int = 480) -> LinkedGraphs:
        """The linked graphs of the model and of one built variant, or of two, without the rest of the Explorer.

        >>> study.graph("fp16")
        <LinkedGraphs tiny: fp16>
        """
        from rtlab.web.explorer.widget import LinkedGraphs

        return LinkedGraphs(self.state, self[name].facts, self[other].facts if other else None, height=height)


def explore(
    model: Model | str | Path | bytes | onnx.ModelProto | None = None,
    *,
    data: Any = None,
    task: Task | None = None,
    height: int | None = None,
) -> Explorer:
    """Open the Explorer on a model; without one, on the first sample with its data and task.

    The fp32 variant is built at once. The path of an engine's file, such as a build that ``Study.save_build`` wrote, is
    opened as ``read`` does, that of a saved study as ``open`` does. ``height`` is in pixels; by default it is that of
    the window.
    """
    if model is None:
        from rtlab import samples

        sample = samples.load("digits_inception")
        model, data, task = sample.model, sample.calibration, sample.task
    # Readers and their many expressions are imported where files are read.
    from rtlab.backends.readers import recognise

    if isinstance(model, (str, Path)) and recognise.holds_study(Path(model)):
        return open(model, data=data, task=task).explore(height=height)
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
        files: Files whose kind is found by their content, an ONNX model among them.
        model: The ONNX model, where it is not among the files.
        name: The name of the variant.
        text: Text in place of a file, as ``Study.read`` takes it.
        kwargs: Files by kind and options, as ``Study.read`` takes them.

    Returns:
        A study with that one variant.

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
        onnx_model = model if model is not None else files_by_kind.pop("model", None)
        if onnx_model is None:
            source = recorded_source(files_by_kind) or make_empty_model()
        else:
            source = onnx_model if isinstance(onnx_model, Model) else load(onnx_model, weights=False)
        study = Study(source)
        study.read(name, **(options | files_by_kind))
    return study


@boundary("open the study")
def open(  # noqa: A001 - the field's word
    path: str | Path,
    *,
    model: Model | str | Path | None = None,
    data: Any = None,
    task: Task | None = None,
) -> Study:
    """Open a study that ``Study.save`` wrote, with all that was found out; nothing is built or run.

    Where the model's file is still at its place, seen from the study's file, or beside it, and has the same digest,
    all works as before. Without it the graph and the results are shown, and what needs weights says so.

    Args:
        path: The file.
        model: The model, or its file, where that lies elsewhere now.
        data: The samples, whatever ``CalibrationData.of`` takes, to go on with; random ones are drawn again.
        task: Samples with labels and a metric, where that is a function of yours.

    Raises:
        ReadError: it is no saved study, is cut short or damaged, or of another schema.
        ModelError: the model is another one than that of the study, or cannot be loaded.
        CalibrationError: the samples are others than those of the study.
    """
    return Study.open(path, model=model, data=data, task=task)


def available() -> Mapping[str, Any]:
    """Backends by name with version, or with the reason why one is missing."""
    return backends.available()
