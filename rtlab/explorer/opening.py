"""What the Explorer opens: models, samples, files of engines, and what was dropped on it."""

from __future__ import annotations

import collections.abc
import dataclasses
import itertools
import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rtlab.backends.files import build, recognise
from rtlab.core import model as _model
from rtlab.core import scratch
from rtlab.core.data import samples_of
from rtlab.core.inputs import read_input
from rtlab.core.phrases import quoted
from rtlab.core.progress import Reporting
from rtlab.documents import glossary
from rtlab.documents.commands import ReadDropped
from rtlab.documents.contract import Side
from rtlab.documents.payload import encode
from rtlab.documents.tabs import FIRST, Tab
from rtlab.errors import CalibrationError, ReadError
from rtlab.explorer.choosing import Choosing
from rtlab.explorer.pictures import is_large
from rtlab.questions import panels
from rtlab.questions.cards.picture import Graph
from rtlab.questions.scene import Scene
from rtlab.session import Session
from rtlab.view import controls as offer
from rtlab.view.contract import Later
from rtlab.view.graph import source_graph, source_later
from rtlab.view.state import ViewState

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
        self._drawn = threading.Event()
        #: Folders whose files the page may open; Python opens any. Those of the model and of the kernel where there are
        #: none named.
        self._folders: tuple[Path, ...] | None = None
        super().__init__(script, study, baseline=baseline, **traits)

    def load(self, model: str | Path | bytes, *, name: str | None = None) -> Self:
        """Open another model, or a file of an engine: a sample's name, a path, or the bytes of a file; on a thread."""
        if not self._busy:
            self._start(lambda progress: self._load(model, name, progress), "open the model")
        return self

    def read(self, *files: str | Path, name: str | None = None, **given: Any) -> Self:
        """Read files of one engine from another machine on a thread, and show it; an ONNX model among them is opened.

        Args:
            files: Files whose kind is found by what is in them.
            name: What the variant is called; by default after the file that describes the engine.
            given: What ``Study.read`` takes beside.
        """
        paths = [Path(f) for f in files]
        return self._work(lambda progress: self._read(paths, name, given, progress), "read the files")

    def use(self, data: Any) -> Self:
        """Take other samples from now on, on a thread: see ``Study.use``. What rests on random input is built anew."""
        return self._work(lambda progress: self._use(data, progress), "use the data")

    def repair(self, *findings: str) -> Self:
        """Open the model with findings of its Q/DQ placement repaired, all that can be by default; on a thread."""
        return self._work(lambda progress: self._repair_placement(findings, progress), "repair the model")

    def name_sizes(self, shapes: collections.abc.Mapping[str, Sequence[int] | int]) -> Self:
        """Open the model with these sizes of its dynamic dimensions, by input or by symbol; on a thread."""
        return self._work(lambda progress: self._name_sizes(shapes, progress), "take these sizes")

    def _opened(self, path: str) -> None:
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
            known = quoted(sorted({str(f.resolve()) for f in folders})) or "none"
            raise ReadError(
                f'Cannot open "{path}" from the page: it opens files of these folders: {known}. Name another one with '
                "study.explore(files=FOLDER), or open it in a cell with explorer.load(PATH)."
            )

    def _dropped(self, asked: ReadDropped, buffers: Sequence[Any]) -> None:
        """Files from the browser: they are read from a folder that goes away with the work."""
        names = asked.names
        if len(names) != len(buffers):
            raise ReadError(
                f"Cannot read what was dropped: {len(buffers)} of {len(names)} files arrived. Drop them again, or give "
                "their paths in a cell."
            )

        def work(progress: Reporting) -> None:
            with scratch.folder() as folder:
                paths = []
                for i, (name, content) in enumerate(zip(names, buffers, strict=True)):
                    # A name may hold a path; two files may have one name.
                    home = Path(folder) / str(i)
                    home.mkdir()
                    paths.append(home / (re.sub(r"[^\w.+ -]", "_", Path(name).name)[-100:] or "file"))
                    paths[-1].write_bytes(content)
                self._read(paths, None, {}, progress, lasting=False)

        self._work(work, asked.doing)

    def _load(
        self, model: str | Path | bytes, name: str | None, progress: Reporting, *, data: Path | None = None
    ) -> None:
        from rtlab import samples

        if isinstance(model, (str, Path)) and recognise.holds_engine(Path(model)):
            self._read([Path(model)], name, {}, progress)
            return
        progress.phase("Opening the model")
        # A study stands above this row; the one at hand knows how to make another.
        fresh = type(self.study)
        if isinstance(model, str) and model in samples.names():
            sample = samples.load(model)
            study = fresh(sample.model, data=sample.calibration, task=sample.task)
        else:
            opened = _model.load(model, name=name)
            study = fresh(opened, data=None if data is None else samples_of(data, opened))
        self._adopt(study, progress)

    def _read(
        self,
        paths: Sequence[Path],
        name: str | None,
        given: collections.abc.Mapping[str, Any],
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
        found = recognise.sort(p for p in paths if p not in arrays)
        source = found.pop("model", None)
        study = self.study
        if arrays and not found and source is None:
            self._use(arrays[0], progress)
            return
        if source is not None:
            content: Path | bytes = source if lasting else read_input(source)
            if not found and not given:
                self._load(content, source.stem, progress, data=next(iter(arrays), None))
                return
            # A study stands above this row; the one at hand knows how to make another.
            study = type(study)(_model.load(content, name=source.stem, weights=False), limits=study.limits)
        elif "build" in found:
            # A recording is opened on the model that it is of, unless that is the one on screen.
            whole = build.read(found["build"])
            if whole.source is not None and whole.structure != study.model.structure:
                study = type(study)(whole.source, limits=study.limits)
        title = _unused(name or _title(found), study.variants)
        study.read(title, **{**found, **given})
        if study is not self.study:
            self._exchange(study)
            self.choice = offer.choice(study.model, offer.start(study.model))
            self._open()
        if arrays:
            self.study.use(samples_of(arrays[0], self.study.model))
        self.show(title)

    def _use(self, data: Any, progress: Reporting) -> None:
        """Other samples; the variant on screen is built anew where it rests on random input, the others when asked."""
        study = self.study
        if not study.model.nodes:
            title = getattr(data, "name", data)
            raise CalibrationError(
                f'Cannot use "{title}" as data: no ONNX model is open to run on it. Open one first.'
            )
        study.use(samples_of(data, study.model) if isinstance(data, Path) else data)
        self._tell_calibration()
        shown = self.state.variant
        if shown and study.outdated(shown):
            self._building = shown
            self._refresh(building=shown)
            self._build(shown, progress)

    def _repair_placement(self, chosen: Sequence[str], progress: Reporting) -> None:
        progress.phase("Repairing the placement")
        study = self.study
        model = study.repaired(chosen or None, progress=progress)
        repaired = type(study)(model, data=study.given, task=study.task, limits=study.limits)
        self._adopt(repaired, progress, self.choice)

    def _name_sizes(
        self, shapes: collections.abc.Mapping[str, Sequence[int] | int], progress: Reporting
    ) -> None:
        study = self.study
        sized = study.model.sized(shapes)
        self._adopt(
            type(study)(sized, data=study.given, task=study.task, limits=study.limits), progress, self.choice
        )

    def _adopt(self, study: Session[Any], progress: Reporting, chosen: dict[str, Any] | None = None) -> None:
        """Show another study, and build its first variant: the one that was chosen, or fp32."""
        self._exchange(study)
        first = offer.choice(study.model, offer.start(study.model))
        # Pins and pruning name nodes, which another model may not have.
        kept = ("precision", "calibrator", "target", "weights")
        self.choice = {**first, **({k: chosen[k] for k in kept} if chosen else {})}
        self._open()
        self._check_sized()
        planned = self._planned()
        self._refresh(building=planned)
        self._build(planned, progress)

    def _exchange(self, study: Session[Any]) -> None:
        with self._turn:
            self._made = {}
            self.study.views.discard(self)
            study.views.add(self)
            self.study, self._baseline = study, ""
            self.engine = self.other = b""
            self.source_later = self.engine_later = self.other_later = b""
            self._inspecting.stop()
            self.inspection = None

    def _open(self) -> None:
        study = self.study.snapshot()
        built = next((n for n in study.variants if n in study.facts), "")
        aside = bool(built) and not self._busy and is_large(study.facts[built])
        if not aside:
            self.source = encode(source_graph(study.model), Graph)
        self.terms = glossary.told()
        panes: tuple[Side, ...] = ("node", "layer") if study.model.nodes else ("layer",)
        tab = self.state.tab
        if tab == FIRST and self._is_recorded(built):
            # What a file tells of an engine is more than times, and may have none.
            tab = Tab("engine")
        # Of an engine that takes a while the page knows the name, and waits for it.
        shown = built if aside else ""
        self._put(ViewState(variant=shown, baseline=self._baseline or built, tab=tab, panes=panes))
        self.controls = dict(offer.controls(study.model, self.choice))
        self._tell_calibration()
        self._send_answers(panels.packed(Scene(study)))
        if aside:
            self._drawn.clear()
            self._start(lambda progress: self._show_aside(built, progress), f'show "{built}"')
        elif built in self.study.facts:
            self.show(built)
        else:
            self._refresh()

    def _show_aside(self, name: str, progress: Reporting) -> None:
        model = self.study.model
        try:
            progress.phase("Preparing the model's view")
            self.source = encode(source_graph(model, later=True), Graph)
            progress.phase("Preparing the engine's view")
            made = self._picture(self.study.facts_of(name))
            progress.phase("Preparing the numbers")
            # To draw takes the page all processors that a small machine has.
            if self._displayed:
                self._drawn.wait(_DRAWING)
            self._follow(made)
        except BaseException:
            self._put(dataclasses.replace(self.state, variant=""))
            raise
        finally:
            self.source_later = encode(source_later(model), Later)


def _title(files: collections.abc.Mapping[str, Path]) -> str:
    """A name for an engine, after the file that describes it."""
    told = next((files[k] for k in ("build", "layers", "archive", "log", "ort_model") if k in files), None)
    words = re.sub(r"[._\s]+", " ", told.stem) if told else ""
    return " ".join(_PLAIN_WORDS.sub("", words).split()) or "engine"


def _unused(name: str, taken: collections.abc.Container[str]) -> str:
    fresh = (name if i == 1 else f"{name} {i}" for i in itertools.count(1))
    return next(n for n in fresh if n not in taken)
