"""What the Explorer shows: the graphs, the selection, the variants and their status."""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rtlab.analyses import panels
from rtlab.analyses.fusion import map_nodes
from rtlab.analyses.inspection.tensors import Inspection
from rtlab.analyses.panel_context import PanelContext
from rtlab.analyses.study_state import StudyState
from rtlab.core.progress import Silent
from rtlab.documents.serialization import encode, to_builtins
from rtlab.errors import Cancelled
from rtlab.relation.mapping import map_to_places
from rtlab.study.session import Session
from rtlab.web.explorer.widget import ExplorerWidget, TaskRunner
from rtlab.web.page import charts, chrome
from rtlab.web.page import controls as offer
from rtlab.web.page.contract import EngineView
from rtlab.web.page.graph import add_details, describe_engine_boxes, engine_view
from rtlab.web.page.state import ViewState
from rtlab.web.page.table import describe_failure

if TYPE_CHECKING:
    from rtlab.analyses.inspection.tensors import TensorStats
    from rtlab.core.facts import VariantResult
    from rtlab.relation.mapping import Mapping as NodeMapping


#: From this many layers on an engine is prepared on a thread, so that the page can work from the start.
_MANY_LAYERS = 1_000


class EnginePicture:
    """What is shown of an engine: its picture and what follows, each part made once and when it is sent.

    ``picture`` is empty where the page has a drawing to which this adds numbers.
    """

    def __init__(self, result: VariantResult, study: StudyState, view: EngineView, picture: bytes) -> None:
        self.result, self.view, self._study, self.picture = result, view, study, picture

    @functools.cached_property
    def deferred_details(self) -> bytes:
        """What a large graph's picture lacks; empty where it lacks nothing."""
        return self.numbers if self.view["graph"]["later"] else b""

    @functools.cached_property
    def numbers(self) -> bytes:
        """The details of the boxes and their numbers, whether or not the picture came with older ones."""
        details = describe_engine_boxes(self.result, self._study.model)
        add_details(self.view, details)
        return encode(details)

    @functools.cached_property
    def answers(self) -> dict[str, bytes]:
        """What the page draws with code of its own, by the question's name."""
        return panels.encode_payloads(PanelContext(self._study, self.result))

    @functools.cached_property
    def charts(self) -> dict[str, Any]:
        """The figures of times and errors."""
        # The figures need what the picture lacks.
        view, _ = self.view, self.deferred_details
        return charts.build_charts(view, self.result)


def is_large(result: VariantResult) -> bool:
    """Whether an engine takes so long to prepare that the page should not wait for it."""
    return len(result.engine.layers) >= _MANY_LAYERS


class ViewSync:
    """Keeps what the widget shows in step with a study: one state that every pane reads."""

    def __init__(self, widget: ExplorerWidget, tasks: TaskRunner, study: Session, baseline: str) -> None:
        self.widget, self.tasks, self.study, self.baseline = widget, tasks, study, baseline
        self.pictures: dict[str, EnginePicture] = {}
        self._view_variants = {"variant": "", "baseline": "", "compared": ""}
        self._inspection_progress = Silent()
        self.inspection_thread: threading.Thread | None = None
        #: The choice on the page when the running work began.
        self._choice_before: dict[str, Any] = {}
        tasks.on_start, tasks.on_end = self._begin_work, self._end_work

    @property
    def state(self) -> ViewState:
        """What the panes show now."""
        return ViewState.from_payload(self.widget.view)

    def select(self, *nodes: str) -> None:
        """Select nodes by id in every pane: see ``Explorer.select``."""
        with self.widget.lock:
            state = self.state
            mappings = (self._mapping(state.variant), self._mapping(state.compared))
            self.put(state.select(self.study.model.chosen(nodes), *mappings))

    def arrange(self, **changes: object) -> None:
        """Group, colour and place, as the menus of the panes do."""
        with self.widget.lock:
            self.put(self.state.arrange(**changes))

    def show(self, name: str) -> None:
        """Show a variant that is built: see ``Explorer.show``."""
        result = self.study[name].facts
        with self.widget.lock:
            self.show_details(self.show_picture(result))

    def compare(self, name: str | None) -> None:
        """Show the engine of a second variant in a third pane; None takes that pane away: see ``Explorer.compare``."""
        result = self.study[name].facts if name else None
        with self.widget.lock:
            picture = self._view(result) if result else None
            self.widget.other = picture.picture if picture else b""
            self.put(self.state.compare(name or "", self._mapping(name or "")))
            self.widget.other_later = picture.deferred_details if picture else b""

    def inspect(self, place: str) -> None:
        """Send the distributions of a node's weights and outputs, on a thread; a pill of the page has none."""
        self.stop_inspection()
        if place in self.study.model.places:
            progress = self._inspection_progress = Silent()
            self.inspection_thread = threading.Thread(
                target=self._inspect, args=(place, progress), name="rtlab-inspect", daemon=True
            )
            self.inspection_thread.start()
        else:
            note = "Only nodes have weights and outputs to look at."
            self.widget.inspection = to_builtins(Inspection(place, (), note))

    def stop_inspection(self) -> None:
        """Send nothing more of what was inspected before."""
        self._inspection_progress.cancel()

    def changed(self) -> None:
        """Show what the study has now, such as a variant that a cell or another Explorer built; the study calls it."""
        if self.tasks.busy and threading.current_thread() is not self.tasks.thread:
            # What this view does itself ends with the same.
            return
        try:
            if self.tasks.busy:
                self._show_stage()
                return
            self.sync()
        except Exception as error:  # noqa: BLE001 - what called the study must not fail for a view
            self.widget.failure = dict(describe_failure(error, "show what the study has now"))
        self.widget.stamp += 1

    def show_picture(self, result: VariantResult) -> EnginePicture:
        """Show an engine, and give what follows its picture."""
        with self.widget.lock:
            picture = self._view(result)
            if picture.view["graph"]["later"]:
                # Answers about the engine before must not be shown beside this one.
                self.widget.engine_answer = self.widget.build_answer = self.widget.findings_answer = b""
            self.widget.engine = picture.picture
            state = self.state
            self.put(state.show(result.name, self._mapping(result.name), self._mapping(state.compared)))
            return picture

    def show_details(self, picture: EnginePicture) -> None:
        """Show what follows the picture of an engine: answers, numbers and charts."""
        with self.widget.lock:
            self.send_answers(picture.answers)
            self.widget.engine_later = picture.deferred_details
            self.widget.charts = picture.charts
            is_changed = self.tasks.busy and self.widget.choice != self._choice_before
            # What was read from files is no choice that could be built here, and what is chosen meanwhile stays.
            if not picture.result.recorded and not is_changed:
                self.widget.choice = offer.build_choice(self.study.model, picture.result.variant)
            self.refresh()

    def _begin_work(self, name: str) -> None:
        self._choice_before = dict(self.widget.choice)
        self.refresh(name)

    def _show_stage(self) -> None:
        """Show what the running work has found by now: the engine as soon as it is there, and then its numbers."""
        name = self.tasks.building
        with self.widget.lock:
            result, picture = self.study.state.results.get(name), self.pictures.get(name)
            if result is None:
                return
            if picture is None or picture.result.engine is not result.engine:
                self.show_details(self.show_picture(result))
                if self.state.compared == name:
                    self.compare(name)
            else:
                self._update_picture(picture, result)
            self.send_calibration()
            self.widget.stamp += 1

    def _update_picture(self, old_picture: EnginePicture, result: VariantResult) -> None:
        """Send what a stage added to an engine that has been drawn; its picture stays the one that it is."""
        name = result.name
        self.pictures[name] = picture = EnginePicture(result, self.study.state, old_picture.view, b"")
        if self.state.variant == name:
            self.send_answers(picture.answers)
            self.widget.engine_later, self.widget.charts = picture.numbers, picture.charts
        if self.state.compared == name:
            self.widget.other_later = picture.numbers
        self.refresh()

    def sync(self) -> None:
        """Show what the study has now in place of what it had."""
        with self.widget.lock:
            study = self.study.state
            old = [n for n, picture in self.pictures.items() if study.results.get(n) is not picture.result]
            for name in old:
                del self.pictures[name]
            before = self.state.variant
            after = next((n for n in (before, *study.variants) if n in study.results), "")
            if after and (after != before or after in old):
                self.show_details(self.show_picture(study.results[after]))
            elif before and not after:
                self.widget.engine = self.widget.engine_later = b""
                self.send_answers(panels.encode_payloads(PanelContext(study)))
                self.put(dataclasses.replace(self.state, variant="", layers=()))
            # What a cell observed is of no variant.
            self.send_calibration()
            self.refresh()

    def _end_work(self) -> None:
        """Show what work has left, such as what a stopped calibration saw."""
        self.send_calibration()
        self.refresh()

    def send_answers(self, answers: Mapping[str, bytes]) -> None:
        """Send what the page draws with code of its own, by the question's name."""
        for name, packed in answers.items():
            setattr(self.widget, f"{name}_answer", packed)

    def send_calibration(self) -> None:
        """Send what all variants share of the calibration."""
        self.send_answers(panels.encode_payloads(PanelContext(self.study.state), shared=True))

    def is_recorded(self, name: str) -> bool:
        """Whether a variant was read from files of another machine."""
        result = self.study.state.results.get(name)
        return result is not None and result.recorded

    def _mapping(self, name: str) -> NodeMapping | None:
        result = self.study.state.results.get(name)
        return map_to_places(map_nodes(result), self.study.model) if result else None

    def _view(self, result: VariantResult) -> EnginePicture:
        """What is shown of a built variant, made once."""
        with self.widget.lock:
            picture = self.pictures.get(result.name)
            if picture is None or picture.result is not result or not picture.picture:
                study = self.study.state
                view = engine_view(result, study.model, defer_details=is_large(result))
                picture = EnginePicture(result, study, view, encode(view))
                self.pictures[result.name] = picture
            return picture

    def _inspect(self, place: str, progress: Silent) -> None:
        """Send the weights at once, then the outputs; what cannot be had is a note."""
        study = self.study

        def publish(note: str) -> None:
            with self.widget.lock:
                if not progress.stopped():
                    self.widget.inspection = to_builtins(Inspection(place, tensors, note))

        tensors: tuple[TensorStats, ...] = ()
        try:
            tensors = study.calibration.weights(place)
            publish("Measuring the outputs …")
            tensors += study.calibration.activations(place, progress=progress)
            publish("" if tensors else "This node reads no weights and writes no numbers.")
        except Cancelled:
            return
        except Exception as error:  # noqa: BLE001 - whatever it is, the user must read it in the panel
            publish(str(error))

    def refresh(self, building: str = "") -> None:
        """Show the variants, the controls and what is said of the study; ``building`` is the variant that is built."""
        with self.widget.lock:
            study, state = self.study.state, self.state
            if state.compared and state.compared not in {*study.results, self.tasks.building}:
                self.compare(None)
                state = self.state
            baseline = self.baseline or chrome.pick_baseline(study)
            if state.baseline != baseline:
                self.put(dataclasses.replace(state, baseline=baseline))
            self.widget.chips = [
                to_builtins(c) for c in chrome.build_chips(study, baseline=baseline, building=building)
            ]
            self.widget.controls = dict(offer.build_controls(study.model, self.widget.choice))
            self.widget.status = [dict(s) for s in chrome.list_status(study, state.variant)]
            self.widget.data = dict(chrome.describe_data(study))
            self.widget.notice = offer.describe_builder(self.study.model)

    def put(self, state: ViewState) -> None:
        """Show another state in all panes."""
        payload = state.payload()
        self._view_variants = {key: payload[key] for key in self._view_variants}
        self.widget.view = payload

    def check_view(self, _change: Any) -> None:
        """The browser sends the whole view; the variants in it may be those of a moment ago."""
        if any(self.widget.view.get(key) != value for key, value in self._view_variants.items()):
            state = ViewState.from_payload({**self.widget.view, **self._view_variants})
            if self.widget.view.get("compared") != state.compared:
                state = state.compare(state.compared, self._mapping(state.compared))
            self.widget.view = state.payload()
