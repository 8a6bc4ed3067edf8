"""The Explorer: choice, variants, two linked graphs, charts, table and panel in one cell.

One widget model holds the shared view state, so that selection and hover light up in the browser without a round
trip to the kernel. Builds run on a thread, so that the kernel stays free for gestures such as Cancel.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import functools
import io
import itertools
import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import traitlets

from rtlab import questions
from rtlab.backends.files import recognise
from rtlab.core import model as _model
from rtlab.core import scratch
from rtlab.core.data import samples_of
from rtlab.core.heap import growing
from rtlab.core.progress import Reporting, Silent
from rtlab.core.stage import BUDGET_S, budget_of
from rtlab.core.variant import Calibrator, Precision, Variant
from rtlab.documents.contract import (
    BuildState,
    Panel,
    Pin,
    Side,
    WorkName,
)
from rtlab.documents.crossing import plain
from rtlab.documents.payload import encode
from rtlab.errors import CalibrationError, Cancelled, ReadError, RtlabError, VariantError, told
from rtlab.explorer import charts as figures
from rtlab.explorer import netron
from rtlab.explorer.delivering import Delivering
from rtlab.explorer.inspecting import Inspecting
from rtlab.quantize import export
from rtlab.questions import panels
from rtlab.questions.build.panel import BuildStory, story
from rtlab.questions.calibration.panel import Calibrated, calibration
from rtlab.questions.cards.picture import Graph
from rtlab.questions.findings.panel import findings
from rtlab.questions.inspection.tensors import Inspection
from rtlab.questions.scene import Scene
from rtlab.questions.snapshot import Snapshot
from rtlab.relation.mapping import placed
from rtlab.session import Session
from rtlab.view import chrome
from rtlab.view import controls as offer
from rtlab.view.contract import EngineView, Later
from rtlab.view.graph import complete, engine_later, engine_view, source_graph, source_later
from rtlab.view.layers import layers_model
from rtlab.view.state import ViewState
from rtlab.view.table import failure

if TYPE_CHECKING:
    from rtlab.core.facts import Facts
    from rtlab.core.model import Model
    from rtlab.questions.inspection.tensors import TensorStats
    from rtlab.relation.mapping import Mapping

#: What the buttons of panels try, likewise.
_WORKS: dict[WorkName, str] = {
    "sweep": "time the batch sizes",
    "rebuild": "build the variations",
    "tune": "tune the model",
    "peaks": "measure this processor",
}
#: Words of a file's name that do not tell which engine it is of.
_PLAIN_WORDS = re.compile(
    r"\b(engine|graph|layers?|profile|timing|times|trt|json|info|build|log)\b", re.IGNORECASE
)
#: From this many layers on an engine is prepared on a thread, so that the page can work from the start.
_MANY_LAYERS = 1_000
#: Seconds that the kernel leaves the page to draw a large engine before it goes on with what follows.
_DRAWING = 1.0
#: What each gesture of the page tries, continuing "Cannot".
_DOING = {
    "build": "build the variant",
    "cancel": "cancel the work",
    "show": "show the variant",
    "baseline": "compare with this variant",
    "rebuild": "build the variant again",
    "remove": "remove the variant",
    "open": "open the file",
    "drop": "read what was dropped",
    "netron": "open Netron",
    "compare": "show a second engine",
    "inspect": "look into the node",
    "extract": "save the selected nodes",
    "observe": "calibrate",
    "rank": "rank the calibrators",
    "repair": "repair the model",
    "save": "save the file",
    "panel": "answer the panel",
    "work": "do the panel's work",
    "measure": "measure the variant",
    "plotly": "send the charts",
}
_IDLE = BuildState(running=False, phase="", fraction=None, elapsed=0.0)


class Explorer(Delivering):
    """See what a compiler did to a model, in one cell.

    ``state`` is what the panes show; ``select`` changes it from Python; ``compare`` shows a second engine beside the
    first; ``run`` builds the chosen variant, as the Build button does; ``wait`` blocks until that is done.
    """

    source = traitlets.Bytes(b"").tag(delivered=True)
    engine = traitlets.Bytes(b"").tag(delivered=True)
    other = traitlets.Bytes(b"").tag(delivered=True)
    #: What follows the picture where that is large, each a ``Later``; empty where the picture has it all.
    source_later = traitlets.Bytes(b"").tag(delivered=True)
    engine_later = traitlets.Bytes(b"").tag(delivered=True)
    other_later = traitlets.Bytes(b"").tag(delivered=True)
    inspection = traitlets.Dict(allow_none=True, default_value=None).tag(sync=True)
    controls = traitlets.Dict().tag(sync=True)
    choice = traitlets.Dict().tag(sync=True)
    chips = traitlets.List().tag(sync=True)
    build = traitlets.Dict(dict(_IDLE)).tag(sync=True)
    view = traitlets.Dict().tag(sync=True)
    status = traitlets.List().tag(sync=True)
    #: What the study runs on, a ``DataState``.
    data = traitlets.Dict().tag(sync=True)
    failure = traitlets.Dict(allow_none=True, default_value=None).tag(sync=True)
    notice = traitlets.Unicode("").tag(sync=True)
    #: In pixels; 0 is what the window has room for.
    height = traitlets.Int(0).tag(sync=True)
    charts = traitlets.Dict().tag(delivered=True)
    calibration = traitlets.Bytes(b"").tag(delivered=True)
    story = traitlets.Bytes(b"").tag(delivered=True)
    findings = traitlets.Dict().tag(delivered=True)
    #: Rises when what panels tell may have changed, so that the page asks again.
    stamp = traitlets.Int(0).tag(sync=True)

    @growing()
    def __init__(
        self, study: Session[Any], *, baseline: str | None = None, height: int | None = None
    ) -> None:
        self.study = study
        #: What is on screen changes in one piece: cells, gestures and builds are threads of their own.
        self._turn = threading.RLock()
        self._made: dict[str, _Made] = {}
        self._thread: threading.Thread | None = None
        self._progress: Reporting | None = None
        self._baseline = baseline or ""
        self._ours = {"variant": "", "baseline": "", "compared": ""}
        self._inspecting = Inspecting(self._inspect, self._publish)
        self._building, self._busy = "", False
        #: What a cell asked for while something else, such as opening the model, was under way.
        self._next: dict[str, Any] = {}
        self._drawn = threading.Event()
        super().__init__("explorer.js", height=height or 0)
        first = next((v for n, v in study.variants.items() if not _recorded(study.snapshot(), n)), None)
        self.choice = offer.choice(study.model, first or offer.start())
        self._open()
        study.views.add(self)
        self.on_msg(self._gesture)
        self.observe(self._chosen, "choice")
        self.observe(self._viewed, "view")

    def __repr__(self) -> str:
        return f"<Explorer {self.study.model.name}: {len(self.study.facts)} variants>"

    @property
    def state(self) -> ViewState:
        """What the panes show now."""
        return ViewState.of(self.view)

    def select(self, *nodes: str) -> None:
        """Select nodes by id in every pane.

        Raises:
            ModelError: there is no such node.
        """
        with self._turn:
            state = self.state
            mappings = (self._mapping(state.variant), self._mapping(state.compared))
            self._put(state.select(self.study.model.chosen(nodes), *mappings))

    def arrange(self, **changes: object) -> Explorer:
        """Group, colour and place, as the menus of the panes do: see ``ViewState.arrange``."""
        with self._turn:
            self._put(self.state.arrange(**changes))
        return self

    @growing()
    def show(self, name: str) -> None:
        """Show a variant that is built.

        Raises:
            VariantError: it is not built; or the error of its failed build.
        """
        result = self.study.facts_of(name)
        with self._turn:
            self._follow(self._picture(result))

    def _picture(self, result: Facts) -> _Made:
        with self._turn:
            made = self._view(result)
            self.engine = made.picture
            state = self.state
            self._put(state.show(result.name, made.mapping, self._mapping(state.compared)))
            return made

    def _follow(self, made: _Made) -> None:
        with self._turn:
            self.engine_later = made.later
            self.story = made.story
            self.charts = made.charts
            # What was read from files is no choice that could be built here.
            if not made.result.recorded:
                self.choice = offer.choice(self.study.model, made.result.variant)
            self._refresh()

    def compare(self, name: str | None) -> None:
        """Show the engine of a second variant in a third pane; None takes that pane away.

        Raises:
            VariantError: it is not built; or the error of its failed build.
        """
        result = self.study.facts_of(name) if name else None
        with self._turn:
            made = self._view(result) if result else None
            self.other = made.picture if made else b""
            self._put(self.state.compare(name or "", made.mapping if made else None))
            self.other_later = made.later if made else b""

    def inspect(self, node: str) -> None:
        """Find out the distribution of a node's weights and outputs, on a thread; it goes to ``inspection``.

        Raises:
            ModelError: there is no such node.
        """
        (place, *_) = self.study.model.chosen([node]) or [node]
        self._inspecting.ask(place)

    def open_in_netron(self, variant: str | None = None) -> str:
        """Show the model, or the engine of a variant drawn as a graph, in Netron; returns the address of the page.

        The address is one of the kernel's machine, known to nobody else, and good for as long as the study lives. The
        page reads this model and the files with its weights, and can connect to nothing else.

        Raises:
            VariantError: the variant is not built.
            RtlabError: no port is free.
        """
        model = self.study.model
        if variant:
            data = bytes(layers_model(self.study.facts_of(variant)).SerializeToString())
            shown = netron.Shown(f"{model.name} {variant}", lambda: io.BytesIO(data))
        else:
            shown = netron.shown(model)
        try:
            return netron.serve(self.study, shown, variant or "")
        except OSError as error:
            raise RtlabError(
                f'Cannot open "{shown.name}" in Netron: this machine gave no port to serve it on ({error.strerror}). '
                "Close other servers, or open the file in the Netron application."
            ) from error

    def run(self, **choice: Any) -> Explorer:
        """Build the chosen variant on a thread and show it; one that is built comes back at once.

        What is chosen here while other work is under way, such as opening the model, is built after that.

        Args:
            choice: ``precision`` (one, or patterns with theirs, as ``Study.add`` takes it), ``calibrator``,
                ``target``, ``weights`` and ``sparsity`` to choose first.

        Raises:
            VariantError: there is no such choice.
        """
        if choice:
            self.choose(**choice)
        with self._turn:
            if self._busy:
                self._next = choice or self._next
                return self
        self.failure = None
        try:
            if not self.study.model.nodes:
                raise VariantError(f"Cannot build: {offer.NO_MODEL[0].lower()}{offer.NO_MODEL[1:]}.")
            name = self._planned()
        except RtlabError as error:
            self.failure = dict(failure(error))
            return self
        if name in self.study.facts and not self.study.outdated(name):
            self.show(name)
            return self
        self._start(lambda progress: self._build(name, progress), f'build "{name}"', name)
        return self

    def choose(self, **choice: Any) -> Explorer:
        """Choose without building; what was chosen before and is not named stays.

        Raises:
            VariantError: there is no such choice.
        """
        unknown = set(choice) - {"precision", "calibrator", "target", "weights", "sparsity"}
        if unknown:
            raise VariantError(
                f'Cannot choose "{min(unknown)}": the Explorer chooses precision, calibrator, target, weights and '
                "sparsity."
            )
        given = {**choice}
        if isinstance(given.get("precision"), collections.abc.Mapping):
            table = {str(k): str(v) for k, v in given.pop("precision").items()}
            given["precision"] = table.pop("*", str(Precision.FP32))
            given["pins"] = [Pin(pattern=k, precision=v) for k, v in table.items()]
        sparse = given.get("sparsity")
        if sparse is not None and not isinstance(sparse, list):
            given["sparsity"] = list(Variant.of(sparsity=sparse).sparsity)
        for name in {"precision", "calibrator", "target", "weights"} & set(given):
            given[name] = str(given[name] or "")
        self.choice = {**self.choice, **given}
        return self

    def measure(self, name: str | None = None) -> Explorer:
        """Go on measuring a variant where it stopped, the one shown by default, on a thread: see ``Study.measure``."""
        name = name or self.state.variant
        self._check_known(name)
        if not self._busy:
            self.failure = None
            self._start(lambda progress: self._measure(name, progress), f'measure "{name}"')
        return self

    def _measure(self, name: str, progress: Reporting) -> None:
        self._building = name
        # Whoever only compiles and then asks for numbers wants some.
        self.study.measure(name, progress=progress, budget_s=self._budget or BUDGET_S)

    def calibrate(self) -> Explorer:
        """Gather the activations' ranges on a thread, for the Calibration tab; cancelling keeps what was seen."""
        return self._work(self._calibrate, "calibrate")

    def rank(self) -> Explorer:
        """Try every calibrator on the task, on a thread."""
        return self._work(self._rank, "rank the calibrators")

    def repair(self, *findings: str) -> Explorer:
        """Open the model with findings of its Q/DQ placement repaired, all that can be by default; on a thread."""
        return self._work(lambda progress: self._repair(findings, progress), "repair the model")

    def _work(self, work: Callable[[Reporting], object], doing: str) -> Explorer:
        if not self._busy:
            self.failure = None
            self._start(work, doing)
        return self

    def wait(self, timeout: float | None = None) -> Explorer:
        """Block until the running build is done; a failure is shown in the Explorer, and in ``failure``."""
        end = None if timeout is None else time.monotonic() + timeout
        while (thread := self._thread) is not None:
            thread.join(None if end is None else max(0.0, end - time.monotonic()))
            if thread is self._thread or thread.is_alive():
                break
        return self

    def cancel(self) -> None:
        """Stop the running build; finished variants stay."""
        if self._progress is not None:
            self._progress.cancel()

    def load(self, model: str | Path | bytes, *, name: str | None = None) -> Explorer:
        """Open another model: a sample's name, a path, or the bytes of a file. Runs on a thread."""
        if not self._busy:
            self._start(lambda progress: self._load(model, name, progress), "open the model")
        return self

    def read(self, *files: str | Path, name: str | None = None, **given: Any) -> Explorer:
        """Read files of one engine from another machine on a thread, and show it; an ONNX model among them is opened.

        Args:
            files: Files whose kind is found by what is in them.
            name: What the variant is called; by default after the file that describes the engine.
            given: What ``Study.read`` takes beside.
        """
        paths = [Path(f) for f in files]
        return self._work(lambda progress: self._read(paths, name, given, progress), "read the files")

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
            content: Path | bytes = source if lasting else source.read_bytes()
            if not found and not given:
                self._load(content, source.stem, progress, data=next(iter(arrays), None))
                return
            # A study stands above this row; the one at hand knows how to make another.
            study = type(study)(_model.load(content, name=source.stem, weights=False), limits=study.limits)
        title = _unused(name or _title(found), study.variants)
        study.read(title, **{**found, **given})
        if study is not self.study:
            self._exchange(study)
            self._open()
        if arrays:
            self.study.use(samples_of(arrays[0], self.study.model))
        self.show(title)

    def use(self, data: Any) -> Explorer:
        """Take other samples from now on, on a thread: see ``Study.use``. What rests on random input is built anew."""
        return self._work(lambda progress: self._use(data, progress), "use the data")

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

    def _dropped(self, names: Sequence[str], buffers: Sequence[Any]) -> None:
        """Files from the browser: they are read from a folder that goes away with the work."""
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

        self._work(work, _DOING["drop"])

    def _start(self, work: Callable[[Reporting], object], doing: str, name: str = "") -> None:
        """Do work on a thread: ``doing`` continues "Cannot", ``name`` is the variant that is built."""
        with self._turn:
            if self._busy:
                return
            self._building, self._busy = name, True

        def tell(phase: str, done: int, total: int | None, elapsed: float) -> None:
            fraction = min(1.0, done / total) if total else None
            text = phase + progress.pace
            self.build = dict(BuildState(running=True, phase=text, fraction=fraction, elapsed=elapsed))

        self._progress = progress = Reporting(tell)
        progress.phase("Starting")
        self._refresh(building=name)

        def main() -> None:
            try:
                work(progress)
            except Cancelled:
                self._next = {}
            except Exception as error:  # noqa: BLE001 - whatever it is, the user must read it in the cell
                self._next = {}
                self.failure = dict(failure(error, doing))
            finally:
                self._building = ""
                self._refresh()
                self.stamp += 1
                # Last, since whoever sees it may ask for the next work at once.
                with self._turn:
                    self._busy = False
                    wanted, self._next = self._next, {}
                self.build = dict(_IDLE)
                if wanted:
                    self.run(**wanted)

        self._thread = threading.Thread(target=main, name="rtlab-build", daemon=True)
        self._thread.start()

    def _build(self, name: str, progress: Reporting, *, again: bool = False) -> None:
        self._building = name
        try:
            self.study.run([name], progress=progress, budget_s=self._budget, again=again)
        except Cancelled:
            # What was compiled stays, and with it what was measured; a variant of which nothing is there does not.
            if name not in self.study.facts:
                self.study.remove(name)
            raise
        finally:
            # What a stopped calibration saw is kept, and shown.
            self._tell_calibration()

    @property
    def _budget(self) -> float:
        """Seconds that measuring may take, as chosen in the settings."""
        return budget_of(self.state.settings.get("run.budget_s", BUDGET_S))

    def _staged(self) -> None:
        """Show what the running work has found by now: the engine as soon as it is there, and then its numbers."""
        name = self._building
        with self._turn:
            result, shown = self.study.facts.get(name), self._made.get(name)
            if result is None:
                return
            if shown is None or shown.result.engine is not result.engine:
                self._follow(self._picture(result))
                if self.state.compared == name:
                    self.compare(name)
            else:
                self._renew(shown, result)
            self._tell_calibration()
            self.stamp += 1

    def _renew(self, shown: _Made, result: Facts) -> None:
        """Send what a stage added to an engine that has been drawn; its picture stays the one that it is."""
        name = result.name
        self._made[name] = made = _Made(result, self.study.model, shown.view, b"")
        if self.state.variant == name:
            self.engine_later, self.charts = made.numbers, made.charts
        if self.state.compared == name:
            self.other_later = made.numbers
        self._refresh()

    def _calibrate(self, progress: Reporting) -> None:
        try:
            self.study.observe(progress=progress)
        finally:
            self._tell_calibration()

    def _rank(self, progress: Reporting) -> None:
        try:
            self.study.rank(progress=progress)
        finally:
            self._tell_calibration()

    def _tell_calibration(self) -> None:
        study = self.study
        seen = study.calibration
        used = [v.calibrator for v in study.variants.values() if v.calibrator is not None]
        found = None if seen is None else calibration(study.model, study.task, seen, used)
        self.calibration = b"" if found is None else encode(found, Calibrated)

    def _repair(self, chosen: Sequence[str], progress: Reporting) -> None:
        progress.phase("Repairing the placement")
        study = self.study
        model = study.repaired(chosen or None, progress=progress)
        repaired = type(study)(model, data=study.given, task=study.task, limits=study.limits)
        self._adopt(repaired, progress, self.choice)

    def _load(
        self, model: str | Path | bytes, name: str | None, progress: Reporting, *, data: Path | None = None
    ) -> None:
        from rtlab import samples

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

    def _adopt(self, study: Session[Any], progress: Reporting, chosen: dict[str, Any] | None = None) -> None:
        """Show another study, and build its first variant: the one that was chosen, or fp32."""
        self._exchange(study)
        first = offer.choice(study.model, offer.start())
        # Pins and pruning name nodes, which another model may not have.
        kept = ("precision", "calibrator", "target", "weights")
        self.choice = {**first, **({k: chosen[k] for k in kept} if chosen else {})}
        self._open()
        planned = self._planned()
        self._refresh(building=planned)
        self._build(planned, progress)

    def _exchange(self, study: Session[Any]) -> None:
        with self._turn:
            self._made = {}
            self.study.views.discard(self)
            study.views.add(self)
            self.study, self._baseline = study, ""
            self.engine = self.other = self.story = b""
            self.source_later = self.engine_later = self.other_later = b""
            self._inspecting.stop()
            self.inspection = None

    def _open(self) -> None:
        study = self.study.snapshot()
        built = next((n for n in study.variants if n in study.facts), "")
        aside = bool(built) and not self._busy and _is_large(study.facts[built])
        if not aside:
            self.source = encode(source_graph(study.model), Graph)
        panes: tuple[Side, ...] = ("node", "layer") if study.model.nodes else ("layer",)
        tab = self.state.tab
        if tab == "timing" and _recorded(study, built):
            # What a file tells of an engine is more than times, and may have none.
            tab = "engine"
        # Of an engine that takes a while the page knows the name, and waits for it.
        shown = built if aside else ""
        self._put(ViewState(variant=shown, baseline=self._baseline or built, tab=tab, panes=panes))
        self.controls = dict(offer.controls(study.model, self.choice))
        self._tell_calibration()
        self.findings = plain(findings(study.model, self.study.findings()))
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
            with growing():
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

    def changed(self) -> None:
        """Show what the study has now, such as a variant that a cell or another Explorer built; the study calls it."""
        if self._busy and threading.current_thread() is not self._thread:
            # What this view does itself ends with the same.
            return
        try:
            if self._busy:
                self._staged()
                return
            self._catch_up()
        except Exception as error:  # noqa: BLE001 - what called the study must not fail for a view
            self.failure = dict(failure(error, "show what the study has now"))
        self.stamp += 1

    def _catch_up(self) -> None:
        with self._turn:
            study = self.study.snapshot()
            old = [n for n, made in self._made.items() if study.facts.get(n) is not made.result]
            for name in old:
                del self._made[name]
            shown = self.state.variant
            wanted = (
                shown if shown in study.facts else next((n for n in study.variants if n in study.facts), "")
            )
            if wanted and (wanted != shown or wanted in old):
                self._follow(self._picture(study.facts[wanted]))
            elif shown and not wanted:
                self._clear()
            self._refresh()

    def _planned(self) -> str:
        """The name of the variant that the choice asks for, added to the study when it is new."""
        wanted = offer.wanted(self.choice)
        study = self.study.snapshot()
        for name, variant in study.variants.items():
            if not _recorded(study, name) and dataclasses.replace(variant, backend=None) == wanted:
                return name
        self.study.add(
            wanted.id,
            precision={"*": wanted.precision, **dict(wanted.pins)},
            calibrator=wanted.calibrator,
            target=wanted.target,
            weights=wanted.weights,
            sparsity=wanted.sparsity,
        )
        return wanted.id

    def _mapping(self, name: str) -> Mapping | None:
        result = self.study.facts.get(name)
        return placed(questions.fusion.mapping(result), self.study.model) if result else None

    def _view(self, result: Facts) -> _Made:
        """What is shown of a built variant, made once."""
        with self._turn:
            made = self._made.get(result.name)
            if made is None or made.result is not result or not made.picture:
                view = engine_view(result, self.study.model, later=_is_large(result))
                made = _Made(result, self.study.model, view, encode(view, EngineView))
                self._made[result.name] = made
            return made

    def _inspect(self, place: str, progress: Silent) -> Iterator[Inspection]:
        """The weights at once, then the outputs; what cannot be had is a note."""
        study = self.study
        tensors: tuple[TensorStats, ...] = ()
        try:
            tensors = study.weights(place)
            yield Inspection(place, tensors, "Measuring the outputs …")
            tensors += study.activations(place, progress=progress)
        except Cancelled:
            return
        except Exception as error:  # noqa: BLE001 - whatever it is, the user must read it in the panel
            yield Inspection(place, tensors, str(error))
            return
        yield Inspection(
            place, tensors, "" if tensors else "This node reads no weights and writes no numbers."
        )

    def _publish(self, found: Inspection) -> None:
        self.inspection = plain(found)

    def _refresh(self, building: str = "") -> None:
        with self._turn:
            study, state = self.study.snapshot(), self.state
            if state.compared and state.compared not in study.facts and state.compared != self._building:
                self.compare(None)
                state = self.state
            baseline = self._baseline or chrome.baseline(study)
            if state.baseline != baseline:
                self._put(dataclasses.replace(state, baseline=baseline))
            self.chips = [plain(c) for c in chrome.chips(study, baseline=baseline, building=building)]
            self.controls = dict(offer.controls(study.model, self.choice))
            self.status = [dict(s) for s in chrome.status(study, state.variant)]
            self.data = dict(chrome.data_state(study))
            self.notice = offer.notice()

    def _put(self, state: ViewState) -> None:
        self._ours = {"variant": state.variant, "baseline": state.baseline, "compared": state.compared}
        self.view = state.payload()

    def _viewed(self, _change: Any) -> None:
        """The browser sends the whole view; the variants in it may be those of a moment ago."""
        if any(self.view.get(key) != value for key, value in self._ours.items()):
            late = ViewState.of({**self.view, **self._ours})
            if self.view.get("compared") != late.compared:
                late = late.compare(late.compared, self._mapping(late.compared))
            self.view = late.payload()

    def _chosen(self, _change: Any) -> None:
        chosen = next((p for p in Precision if p.value == self.choice.get("precision")), None)
        if chosen is not None:
            self._settle()
        self.controls = dict(offer.controls(self.study.model, self.choice))

    def _settle(self) -> None:
        """Give the choice the calibrator that it lacks, or take away one that nothing needs."""
        try:
            wanted = offer.wanted(self.choice)
        except RtlabError:
            # Building it says what is wrong; a calibrator that was typed is put right at once.
            try:
                Calibrator.of(self.choice["calibrator"] or Calibrator.AUTO)
            except RtlabError as error:
                self.failure = dict(failure(error))
                self.choice = {**self.choice, "calibrator": str(Calibrator.AUTO)}
            return
        calibrator = str(wanted.calibrator or "")
        if calibrator != self.choice["calibrator"]:
            self.choice = {**self.choice, "calibrator": calibrator}

    def _gesture(self, _widget: Any, content: dict[str, Any], buffers: list[Any]) -> None:
        kind, value = str(content.get("type", "")), str(content.get("value", ""))
        doing = _DOING.get(kind, f'do "{kind}"')
        try:
            self._do(kind, value, buffers)
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            # What our own page sends is whole.
            words = RtlabError(
                f"Cannot {doing}: the page sent what this kernel cannot read. They may be of two versions of "
                "rtlab: restart the kernel, reload the page, and run the cell again.",
                details=told(error, doing).details,
            )
            self._fail(words, doing, type(error).__name__)
        except Exception as error:  # noqa: BLE001 - Jupyter would write it to a log that nobody reads
            self._fail(error, doing, type(error).__name__)

    def _fail(self, error: Exception, doing: str, kind: str) -> None:
        """Show an error; one like that on screen would be no change, and the page would go on waiting."""
        self.failure = None
        self.failure = {**failure(error, doing), "kind": kind}

    def _do(self, kind: str, value: str, buffers: list[Any]) -> None:
        """What each gesture does; one that a newer front end knows and this kernel does not is ignored."""
        actions: dict[str, Callable[[], object]] = {
            "build": lambda: self._run_choice(value),
            "cancel": self.cancel,
            "show": lambda: self.show(value),
            "baseline": lambda: self._rebase(value),
            "rebuild": lambda: self._rebuild(value),
            "remove": lambda: self._remove(value),
            "open": lambda: self._opened(value),
            "drop": lambda: self._dropped(json.loads(value), buffers),
            "netron": lambda: self.send({"type": "link", "value": self.open_in_netron(value)}),
            "compare": lambda: self.compare(value),
            "inspect": lambda: self._asked(value),
            "extract": lambda: self._extract(value),
            "observe": self.calibrate,
            "rank": self.rank,
            "repair": lambda: self.repair(*json.loads(value or "[]")),
            "save": lambda: self._save(**json.loads(value)),
            "dismiss": self._dismiss,
            "panel": lambda: self._panel(value),
            "pictured": self._drawn.set,
            "work": lambda: self._worked(**json.loads(value)),
            "measure": lambda: self.measure(value),
            "plotly": lambda: self.send({"type": "plotly"}, buffers=[figures.script()]),
        }
        actions.get(kind, lambda: None)()

    def _save(self, variant: str, what: str) -> None:
        """Send a file of a built variant: the prepared model, its scales, or a calibration cache."""
        study = self.study.snapshot()
        result = self.study.facts_of(variant)
        stem = export.stem(study.model, result.variant)
        made: dict[str, Callable[[], tuple[str, bytes]]] = {
            "onnx": lambda: (f"{stem}.onnx", result.prepared.model.bytes()),
            "scales": lambda: (
                f"{stem}.scales.json",
                export.scales_json(study.model, result.variant, result.prepared).encode("utf-8"),
            ),
            "cache": lambda: (
                f"{stem}.cache",
                export.cache_of(result.variant, result.prepared).encode(),
            ),
        }
        if what not in made:
            raise VariantError(f'Cannot save "{what}" of a variant. Choose one of {", ".join(made)}.')
        name, content = made[what]()
        self.send({"type": "file", "value": name}, buffers=[content])

    def panel(self, name: str, **settings: object) -> Panel:
        """What a panel tells of the variant shown, as the page gets it.

        Args:
            name: A panel, such as ``memory``.
            settings: What is chosen in it, by key.

        Raises:
            VariantError: there is no such panel, or nothing is built.
        """
        return self._answer(name, self.state.variant, {k: str(v) for k, v in settings.items()})

    def _answer(
        self, name: str, variant: str, settings: collections.abc.Mapping[str, str], asked: str = ""
    ) -> Panel:
        study = self.study.snapshot()
        result = self.study.facts_of(variant)
        # Beside itself, a variant shows nothing; the one in the third pane was chosen for that.
        other = next((n for n in (self.state.compared, self.state.baseline) if n and n != variant), "")
        return panels.answer(name, Scene(study, result, study.facts.get(other), settings, asked))

    def _panel(self, asked: str) -> None:
        wanted = json.loads(asked)
        # What the page asks about may be gone by now; it asks anew when it knows.
        if wanted["panel"] in panels.PANELS and wanted["variant"] in self.study.facts:
            found = self._answer(wanted["panel"], wanted["variant"], wanted["settings"], asked)
            self.send({"type": "panel", "value": asked, "content": found})

    def sweep(self) -> Explorer:
        """Time the variant shown at several batch sizes, on a thread; cancelling keeps what was timed."""
        name = self.state.variant
        return self._work(lambda progress: self._sweep(name, progress), _WORKS["sweep"])

    def vary(self, what: str) -> Explorer:
        """Build the variants that differ from the one shown in a single choice, on a thread: see ``Study.vary``."""
        name = self.state.variant
        return self._work(lambda progress: self._vary(name, what, progress), _WORKS["rebuild"])

    def _sweep(self, name: str, progress: Reporting) -> None:
        self.study.sweep(name, progress=progress)

    def _vary(self, name: str, what: str, progress: Reporting) -> None:
        planned = self.study.vary(name, what)
        # Targets and options change nothing of what the CPU runs.
        compare = what in {"tf32", "sparsity"}
        failed: RtlabError | None = None
        try:
            for title in planned:
                self._building = title
                self._refresh(building=title)
                try:
                    self.study.run([title], progress=progress, compare=compare)
                except Cancelled:
                    raise
                except RtlabError as error:
                    failed = failed or error
        finally:
            # What nobody built was only planned by the button.
            for title in planned:
                if title not in self.study.facts and title not in self.study.failures:
                    self.study.remove(title)
        if built := [t for t in planned if t in self.study.facts]:
            self.show(built[-1])
        if failed is not None:
            raise failed

    def tune(self) -> Explorer:
        """Tune the model's convolutions and products on this CPU, on a thread; cancelling keeps what was tuned."""
        return self._work(lambda progress: self._tune({}, progress), _WORKS["tune"])

    def _tune(self, values: collections.abc.Mapping[str, str], progress: Reporting) -> None:
        if node := values.get("recurrence"):
            self.study.time_forms(node, progress=progress)
        else:
            told = values.get("budget_s")
            given: dict[str, Any] = {"budget_s": float(told)} if told else {}
            self.study.tune(progress=progress, **given)

    def _worked(self, work: WorkName, variant: str, values: collections.abc.Mapping[str, str]) -> None:
        self._check_known(variant)
        # A choice of several, or one option with its value.
        what = values.get("what") or "=".join(next(iter(values.items()), ("", "")))
        works: dict[str, Callable[[Reporting], object]] = {
            "sweep": lambda progress: self._sweep(variant, progress),
            "rebuild": lambda progress: self._vary(variant, what, progress),
            "tune": lambda progress: self._tune(values, progress),
            "peaks": lambda progress: self.study.measure_peaks(progress=progress),
        }
        if work in works:
            self._work(works[work], _WORKS[work])

    def _run_choice(self, text: str) -> None:
        """Build what the browser had chosen when the button was pressed; the trait may still be on its way."""
        if text:
            self.choice = {**self.choice, **json.loads(text)}
        self.run()

    def _opened(self, path: str) -> None:
        """A model by its name or path, or samples by theirs."""
        if path.lower().endswith((".npz", ".npy")):
            self.use(Path(path))
        else:
            self.load(path)

    def _dismiss(self) -> None:
        self.failure = None

    def _check_known(self, name: str) -> Variant:
        found = self.study.variants.get(name)
        if found is None:
            raise VariantError(
                f'Cannot use variant "{name}": the study has none of this name. Choose another.'
            )
        return found

    def _check_idle(self, doing: str) -> None:
        if self._busy:
            raise VariantError(f"{doing}: another build is running. Wait for it, or cancel it first.")

    def _rebase(self, name: str) -> None:
        self._check_known(name)
        self._baseline = name
        self._refresh()

    def _rebuild(self, name: str) -> None:
        variant = self._check_known(name)
        self._check_idle(f'Cannot build "{name}" again')
        self.choice = offer.choice(self.study.model, variant)
        self.failure = None
        self._start(lambda progress: self._build(name, progress, again=True), f'build "{name}" again', name)

    def _remove(self, name: str) -> None:
        if name == self._building:
            self._check_idle(f'Cannot remove "{name}"')
        if self._baseline == name:
            self._baseline = ""
        self.study.remove(name)
        self._catch_up()

    def _clear(self) -> None:
        self.engine = self.story = self.engine_later = b""
        self._put(dataclasses.replace(self.state, variant="", layers=()))

    def _asked(self, place: str) -> None:
        """What the browser asks about may be a pill, or gone with the model of a moment ago."""
        if place in self.study.model.places:
            self._inspecting.ask(place)
        else:
            self.inspection = plain(Inspection(place, (), "Only nodes have weights and outputs to look at."))

    def _extract(self, text: str) -> None:
        """Send the selected nodes as a file; pills among them come along as what they stand for."""
        model = self.study.model
        part = model.extract(i for i in json.loads(text) if i in model.places)
        self.send({"type": "file", "value": f"{part.name}.onnx"}, buffers=[part.bytes()])


class _Made:
    """What is shown of an engine: its picture and what follows, each part made once and when it is sent."""

    def __init__(self, result: Facts, model: Model, view: EngineView, picture: bytes) -> None:
        self.result, self.view, self._model = result, view, model
        #: The engine as it is drawn; empty where the page has a drawing to which this adds numbers.
        self.picture = picture

    @functools.cached_property
    def mapping(self) -> Mapping:
        """Its nodes by the places where they run."""
        return placed(questions.fusion.mapping(self.result), self._model)

    @functools.cached_property
    def later(self) -> bytes:
        """What a large graph's picture lacks; empty where it lacks nothing."""
        return self.numbers if self.view["graph"]["later"] else b""

    @functools.cached_property
    def numbers(self) -> bytes:
        """What the boxes tell, their numbers and the findings, whether or not the picture came with older ones."""
        found = engine_later(self.result, self._model)
        complete(self.view, found)
        return encode(found, Later)

    @functools.cached_property
    def story(self) -> bytes:
        """How the engine was built; empty where no log tells."""
        result = self.result
        if (log := questions.build.log(result)) is None:
            return b""
        return encode(story(log, self._model, result.engine, self.mapping), BuildStory)

    @functools.cached_property
    def charts(self) -> dict[str, Any]:
        """The figures of times and errors."""
        # The figures need what the picture lacks.
        view, _ = self.view, self.later
        return {
            "timing": figures.timing(view),
            "longest": figures.timing(view, longest=True),
            "accuracy": figures.accuracy(view, compared=questions.accuracy.of(self.result) is not None),
        }


def _recorded(study: Snapshot, name: str) -> bool:
    """Whether a variant was read from files of another machine."""
    result = study.facts.get(name)
    return result is not None and result.recorded


def _is_large(result: Facts) -> bool:
    return len(result.engine.layers) >= _MANY_LAYERS


def _title(files: collections.abc.Mapping[str, Path]) -> str:
    """A name for an engine, after the file that describes it."""
    told = next((files[k] for k in ("layers", "archive", "log", "ort_model") if k in files), None)
    words = re.sub(r"[._\s]+", " ", told.stem) if told else ""
    return " ".join(_PLAIN_WORDS.sub("", words).split()) or "engine"


def _unused(name: str, taken: collections.abc.Container[str]) -> str:
    fresh = (name if i == 1 else f"{name} {i}" for i in itertools.count(1))
    return next(n for n in fresh if n not in taken)
