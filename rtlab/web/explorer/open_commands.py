"""What the Explorer opens: models, samples, files of engines, and what was dropped on it."""

from __future__ import annotations

import collections.abc
import dataclasses
import itertools
import re
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rtlab.analyses import panels
from rtlab.analyses.cards.picture import Graph
from rtlab.analyses.panel_context import PanelContext
from rtlab.backends.readers import build, recognise
from rtlab.core import model as _model
from rtlab.core.data import read_samples
from rtlab.core.inputs import read_input
from rtlab.core.phrases import quote_names
from rtlab.core.progress import Reporting
from rtlab.documents import glossary
from rtlab.documents.commands import ReadDropped
from rtlab.documents.contract import Side
from rtlab.documents.payload import encode
from rtlab.documents.tabs import FIRST, Tab
from rtlab.errors import CalibrationError, ReadError
from rtlab.study.session import Session
from rtlab.web.explorer.build_commands import Choosing
from rtlab.web.explorer.graph_cache import is_large
from rtlab.web.page import controls as offer
from rtlab.web.page.contract import Later
from rtlab.web.page.graph import describe_source_boxes, source_graph
from rtlab.web.page.state import ViewState

if TYPE_CHECKING:
    from typing_extensions import Self

#: Words of a file's name that do not tell which engine it is of.
_PLAIN_WORDS = re.compile(
    r"\b(engine|graph|layers?|profile|timing|times|trt|json|info|build|log)\b", re.IGNORECASE
)
#: Seconds that the kernel leaves the page to draw a large engine before it goes on with what follows.
_DRAWING = 1.0


class Opening(Choosing):
    """Takes another study in the place of the one on screen."""

    def __init__(self, script: str, study: Session[Any], *, baseline: str, **traits: Any) -> None:
        self._rendered_event = threading.Event()
        #: Folders whose files the page may open; Python opens any. Those of the model and of the kernel where there are
        #: none named.
        self._folders: tuple[Path, ...] | None = None
        super().__init__(script, study, baseline=baseline, **traits)

    def load(self, model: str | Path | bytes, *, name: str | None = None) -> Self:
        """Open another model, or a file of an engine: a sample's name, a path, or the bytes of a file; on a thread."""
        if not self._busy:
            self._start(lambda progress: self._load(model, name, progress), "open the model")
        return self

    def read(self, *files: str | Path, name: str | None = None, **read_options: Any) -> Self:
        """Read files of one engine from another machine on a thread, and show it; an ONNX model among them is opened.

        Args:
            files: Files whose kind is found by what is in them.
            name: What the variant is called; by default after the file that describes the engine.
            read_options: What ``Study.read`` takes beside.
        """
        paths = [Path(f) for f in files]
        return self._work(lambda progress: self._read(paths, name, read_options, progress), "read the files")

    def use(self, data: Any) -> Self:
        """Take other samples from now on, on a thread: see ``Study.use``. What rests on random input is built anew."""
        return self._work(lambda progress: self._use(data, progress), "use the data")

    def repair(self, *findings: str) -> Self:
        """Open the model with findings of its Q/DQ placement repaired, all that can be by default; on a thread."""
        return self._work(lambda progress: self._repair_placement(findings, progress), "repair the model")

    def name_sizes(self, shapes: collections.abc.Mapping[str, Sequence[int] | int]) -> Self:
        """Open the model with these sizes of its dynamic dimensions, by input or by symbol; on a thread."""
        return self._work(lambda progress: self._name_sizes(shapes, progress), "take these sizes")

    def _open_from_page(self, path: str) -> None:
        """What the page names: a model by its name or path, or samples by theirs.

        Whoever sees the page may be somebody else than whose kernel this is, and reads what is opened.
        """
        from rtlab import samples

        if path in samples.names():
            self.load(path)
            return
        try:
            file = Path(path).expanduser()
            self._check_folder(file)
        except (RuntimeError, ValueError) as error:
            # Nobody has that home, links lead to each other, or a character is none of a name.
            raise ReadError(
                f'Cannot open "{path}" from the page: {error}. Name a file that is there.'
            ) from error
        if file.suffix.lower() in {".npz", ".npy"}:
            self.use(file)
        else:
            self.load(file)

    def _check_folder(self, path: Path) -> None:
        model = self.study.model.path
        default = (Path.cwd(), *([model.parent] if model else []))
        folders = default if self._folders is None else self._folders
        if not any(path.resolve().is_relative_to(folder.resolve()) for folder in folders):
            folder_names = quote_names(sorted({str(f.resolve()) for f in folders})) or "none"
            raise ReadError(
                f'Cannot open "{path}" from the page: it opens files of these folders: {folder_names}. Name another '
                "one with study.explore(files=FOLDER), or open it in a cell with explorer.load(PATH)."
            )

    def _read_dropped_files(self, command: ReadDropped, buffers: Sequence[Any]) -> None:
        """Files from the browser: they are read from a folder that goes away with the work."""
        names = command.names
        if len(names) != len(buffers):
            raise ReadError(
                f"Cannot read what was dropped: {len(buffers)} of {len(names)} files arrived. Drop them again, or give "
                "their paths in a cell."
            )

        def work(progress: Reporting) -> None:
            with tempfile.TemporaryDirectory(prefix="rtlab-", ignore_cleanup_errors=True) as folder:
                paths = []
                for i, (name, content) in enumerate(zip(names, buffers, strict=True)):
                    # A name may hold a path; two files may have one name.
                    home = Path(folder) / str(i)
                    home.mkdir()
                    paths.append(home / (re.sub(r"[^\w.+ -]", "_", Path(name).name)[-100:] or "file"))
                    paths[-1].write_bytes(content)
                self._read(paths, None, {}, progress, lasting=False)

        self._work(work, command.action)

    def _load(
        self, model: str | Path | bytes, name: str | None, progress: Reporting, *, data: Path | None = None
    ) -> None:
        from rtlab import samples

        if isinstance(model, (str, Path)) and recognise.holds_engine(Path(model)):
            self._read([Path(model)], name, {}, progress)
            return
        progress.phase("Opening the model")
        # A study stands above this row; the one at hand knows how to make another.
        study_type = type(self.study)
        if isinstance(model, str) and model in samples.names():
            sample = samples.load(model)
            study = study_type(sample.model, data=sample.calibration, task=sample.task)
        else:
            opened_model = _model.load(model, name=name)
            study = study_type(opened_model, data=None if data is None else read_samples(data, opened_model))
        self._adopt(study, progress)

    def _read(
        self,
        paths: Sequence[Path],
        name: str | None,
        read_options: collections.abc.Mapping[str, Any],
        progress: Reporting,
        *,
        lasting: bool = True,
    ) -> None:
        """Show an engine's files; ``lasting`` says that the files stay where they are."""
        progress.phase("Reading the files")
        arrays = [p for p in paths if recognise.holds_arrays(p)]
        if len(arrays) > 1:
            raise CalibrationError(
                f'Cannot use "{arrays[0].name}" and "{arrays[1].name}" as data: samples come in one file. Save all '
                "inputs together with numpy.savez(path, input_name=array, ...)."
            )
        files_by_kind = recognise.sort_by_kind(p for p in paths if p not in arrays)
        source = files_by_kind.pop("model", None)
        study = self.study
        if arrays and not files_by_kind and source is None:
            self._use(arrays[0], progress)
            return
        if source is not None:
            content: Path | bytes = source if lasting else read_input(source)
            if not files_by_kind and not read_options:
                self._load(content, source.stem, progress, data=next(iter(arrays), None))
                return
            # A study stands above this row; the one at hand knows how to make another.
            study = type(study)(_model.load(content, name=source.stem, weights=False), limits=study.limits)
        elif "build" in files_by_kind:
            # A recording is opened on the model that it is of, unless that is the one on screen.
            recording = build.read(files_by_kind["build"])
            if recording.source is not None and recording.structure != study.model.structure:
                study = type(study)(recording.source, limits=study.limits)
        title = _unused(name or _title(files_by_kind), study.variants)
        study.read(title, **{**files_by_kind, **read_options})
        if study is not self.study:
            self._replace_study(study)
            self.choice = offer.choice(study.model, offer.start(study.model))
            self._open()
        if arrays:
            self.study.use(read_samples(arrays[0], self.study.model))
        self.show(title)

    def _use(self, data: Any, progress: Reporting) -> None:
        """Other samples; the variant on screen is built anew where it rests on random input, the others when asked."""
        study = self.study
        if not study.model.nodes:
            title = getattr(data, "name", data)
            raise CalibrationError(
                f'Cannot use "{title}" as data: no ONNX model is open to run on it. Open one first.'
            )
        study.use(read_samples(data, study.model) if isinstance(data, Path) else data)
        self._tell_calibration()
        visible_variant = self.state.variant
        if visible_variant and study.outdated(visible_variant):
            self._building = visible_variant
            self._refresh(building=visible_variant)
            self._build(visible_variant, progress)

    def _repair_placement(self, findings: Sequence[str], progress: Reporting) -> None:
        progress.phase("Repairing the placement")
        study = self.study
        model = study.repaired(findings or None, progress=progress)
        repaired_study = type(study)(model, data=study.given, task=study.task, limits=study.limits)
        self._adopt(repaired_study, progress, self.choice)

    def _name_sizes(
        self, shapes: collections.abc.Mapping[str, Sequence[int] | int], progress: Reporting
    ) -> None:
        study = self.study
        sized_model = study.model.sized(shapes)
        self._adopt(
            type(study)(sized_model, data=study.given, task=study.task, limits=study.limits),
            progress,
            self.choice,
        )

    def _adopt(
        self, study: Session[Any], progress: Reporting, previous_choice: dict[str, Any] | None = None
    ) -> None:
        """Show another study, and build its first variant: the one that was chosen, or fp32."""
        self._replace_study(study)
        first = offer.choice(study.model, offer.start(study.model))
        # Pins and pruning name nodes, which another model may not have.
        field_names = ("precision", "calibrator", "target", "weights")
        self.choice = {**first, **({k: previous_choice[k] for k in field_names} if previous_choice else {})}
        self._open()
        self._check_shapes()
        variant_name = self._plan_variant()
        self._refresh(building=variant_name)
        self._build(variant_name, progress)

    def _replace_study(self, study: Session[Any]) -> None:
        with self._view_lock:
            self._pictures = {}
            self.study.views.discard(self)
            study.views.add(self)
            self.study, self._baseline = study, ""
            self.engine = self.other = b""
            self.source_later = self.engine_later = self.other_later = b""
            self._inspecting.stop()
            self.inspection = None

    def _open(self) -> None:
        study = self.study.snapshot()
        built_variant = next((n for n in study.variants if n in study.facts), "")
        is_deferred = bool(built_variant) and not self._busy and is_large(study.facts[built_variant])
        if not is_deferred:
            self.source = encode(source_graph(study.model), Graph)
        self.terms = glossary.glossary_terms()
        panes: tuple[Side, ...] = ("node", "layer") if study.model.nodes else ("layer",)
        tab = self.state.tab
        if tab == FIRST and self._is_recorded(built_variant):
            # What a file tells of an engine is more than times, and may have none.
            tab = Tab("engine")
        # Of an engine that takes a while the page knows the name, and waits for it.
        visible_variant = built_variant if is_deferred else ""
        self._put(
            ViewState(variant=visible_variant, baseline=self._baseline or built_variant, tab=tab, panes=panes)
        )
        self.controls = dict(offer.controls(study.model, self.choice))
        self._tell_calibration()
        self._send_answers(panels.encode_payloads(PanelContext(study)))
        if is_deferred:
            self._rendered_event.clear()
            self._start(
                lambda progress: self._show_large_engine(built_variant, progress), f'show "{built_variant}"'
            )
        elif built_variant in self.study.facts:
            self.show(built_variant)
        else:
            self._refresh()

    def _show_large_engine(self, name: str, progress: Reporting) -> None:
        model = self.study.model
        try:
            progress.phase("Preparing the model's view")
            self.source = encode(source_graph(model, defer_details=True), Graph)
            progress.phase("Preparing the engine's view")
            picture = self._picture(self.study.facts_of(name))
            progress.phase("Preparing the numbers")
            # To draw takes the page all processors that a small machine has.
            if self._is_displayed:
                self._rendered_event.wait(_DRAWING)
            self._show_details(picture)
        except BaseException:
            self._put(dataclasses.replace(self.state, variant=""))
            raise
        finally:
            self.source_later = encode(describe_source_boxes(model), Later)


def _title(files: collections.abc.Mapping[str, Path]) -> str:
    """A name for an engine, after the file that describes it."""
    path = next((files[k] for k in ("build", "layers", "archive", "log", "ort_model") if k in files), None)
    words = re.sub(r"[._\s]+", " ", path.stem) if path else ""
    return " ".join(_PLAIN_WORDS.sub("", words).split()) or "engine"


def _unused(name: str, taken: collections.abc.Container[str]) -> str:
    candidates = (name if i == 1 else f"{name} {i}" for i in itertools.count(1))
    return next(n for n in candidates if n not in taken)
