"""What the Explorer shows: the graphs, the selection, the variants and what is told of them."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import traitlets

from rtlab import questions
from rtlab.core.progress import Silent
from rtlab.documents.crossing import plain
from rtlab.documents.payload import encode
from rtlab.errors import Cancelled
from rtlab.explorer.inspecting import Inspecting
from rtlab.explorer.pictures import EnginePicture, is_large
from rtlab.explorer.working import Working
from rtlab.questions import panels
from rtlab.questions.inspection.tensors import Inspection
from rtlab.questions.scene import Scene
from rtlab.questions.snapshot import Snapshot
from rtlab.relation.mapping import placed
from rtlab.session import Session
from rtlab.view import chrome
from rtlab.view import controls as offer
from rtlab.view.contract import EngineView
from rtlab.view.effects import ranking_of
from rtlab.view.graph import engine_view
from rtlab.view.state import ViewState
from rtlab.view.steps import steps_of
from rtlab.view.table import failure

if TYPE_CHECKING:
    from typing_extensions import Self

    from rtlab.core.facts import Facts
    from rtlab.questions.inspection.tensors import TensorStats
    from rtlab.relation.mapping import Mapping as NodeMapping


class Showing(Working):
    """A study on screen, and one state that every pane reads."""

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
    view = traitlets.Dict().tag(sync=True)
    status = traitlets.List().tag(sync=True)
    #: What the study runs on, a ``DataState``.
    data = traitlets.Dict().tag(sync=True)
    notice = traitlets.Unicode("").tag(sync=True)
    #: In pixels; 0 is what the window has room for.
    height = traitlets.Int(0).tag(sync=True)
    #: The presentation, a list of ``Step``, as the page recorded it: plain dicts, to keep in a cell and to set again.
    steps = traitlets.List().tag(sync=True)
    charts = traitlets.Dict().tag(delivered=True)
    #: What the words of the field mean, as ``glossary.told`` lists them.
    terms = traitlets.List().tag(delivered=True)
    #: Answers that the page draws with code of its own, by the names of their questions; empty where there is none.
    engine_answer = traitlets.Bytes(b"").tag(delivered=True)
    build_answer = traitlets.Bytes(b"").tag(delivered=True)
    calibration_answer = traitlets.Bytes(b"").tag(delivered=True)
    findings_answer = traitlets.Bytes(b"").tag(delivered=True)

    def __init__(self, script: str, study: Session[Any], *, baseline: str, **traits: Any) -> None:
        self.study = study
        self._made: dict[str, EnginePicture] = {}
        self._baseline = baseline
        self._ours = {"variant": "", "baseline": "", "compared": ""}
        self._inspecting = Inspecting(self._inspect, self._publish)
        self._told: tuple[object, ...] = ()
        super().__init__(script, self._refresh, **traits)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.study.model.name}: {len(self.study.facts)} variants>"

    @traitlets.validate("steps")  # type: ignore[untyped-decorator]
    def _checked(self, proposal: Any) -> list[Any]:
        return list(steps_of(proposal["value"]))

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

    def arrange(self, **changes: object) -> Self:
        """Group, colour and place, as the menus of the panes do: see ``ViewState.arrange``."""
        with self._turn:
            self._put(self.state.arrange(**changes))
        return self

    def show(self, name: str) -> None:
        """Show a variant that is built.

        Raises:
            VariantError: it is not built; or the error of its failed build.
        """
        result = self.study.facts_of(name)
        with self._turn:
            self._follow(self._picture(result))

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

    def _picture(self, result: Facts) -> EnginePicture:
        with self._turn:
            made = self._view(result)
            if made.view["graph"]["later"]:
                # What was told of the engine before must not stand beside this one until its own is worked out.
                self.engine_answer = self.build_answer = self.findings_answer = b""
            self.engine = made.picture
            state = self.state
            self._put(state.show(result.name, made.mapping, self._mapping(state.compared)))
            return made

    def _follow(self, made: EnginePicture) -> None:
        with self._turn:
            self._send_answers(made.answers)
            self.engine_later = made.later
            self.charts = made.charts
            # What was read from files is no choice that could be built here.
            if not made.result.recorded:
                self.choice = offer.choice(self.study.model, made.result.variant)
            self._refresh()

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

    def _renew(self, shown: EnginePicture, result: Facts) -> None:
        """Send what a stage added to an engine that has been drawn; its picture stays the one that it is."""
        name = result.name
        self._made[name] = made = EnginePicture(result, self.study.snapshot(), shown.view, b"")
        if self.state.variant == name:
            self._send_answers(made.answers)
            self.engine_later, self.charts = made.numbers, made.charts
        if self.state.compared == name:
            self.other_later = made.numbers
        self._refresh()

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
            # What a cell observed is of no variant; to work out its thresholds may take a second.
            if _observed(study) != self._told:
                self._tell_calibration()
            self._refresh()

    def _clear(self) -> None:
        self.engine = self.engine_later = b""
        self._send_answers(panels.packed(Scene(self.study.snapshot())))
        self._put(dataclasses.replace(self.state, variant="", layers=()))

    def _send_answers(self, answers: Mapping[str, bytes]) -> None:
        """Send what the page draws with code of its own, by the question's name."""
        for name, packed in answers.items():
            setattr(self, f"{name}_answer", packed)

    def _tell_calibration(self) -> None:
        study = self.study.snapshot()
        self._told = _observed(study)
        self._send_answers(panels.packed(Scene(study), shared=True))

    def _is_recorded(self, name: str) -> bool:
        """Whether a variant was read from files of another machine."""
        result = self.study.facts.get(name)
        return result is not None and result.recorded

    def _mapping(self, name: str) -> NodeMapping | None:
        result = self.study.facts.get(name)
        return placed(questions.fusion.mapping(result), self.study.model) if result else None

    def _view(self, result: Facts) -> EnginePicture:
        """What is shown of a built variant, made once."""
        with self._turn:
            made = self._made.get(result.name)
            if made is None or made.result is not result or not made.picture:
                study = self.study.snapshot()
                guilty = ranking_of(study, result.name)
                view = engine_view(result, study.model, guilty, later=is_large(result))
                made = EnginePicture(result, study, view, encode(view, EngineView))
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

    def _asked(self, place: str) -> None:
        """What the browser asks about may be a pill, or gone with the model of a moment ago."""
        if place in self.study.model.places:
            self._inspecting.ask(place)
        else:
            self.inspection = plain(Inspection(place, (), "Only nodes have weights and outputs to look at."))

    def _refresh(self, building: str = "") -> None:
        with self._turn:
            study, state = self.study.snapshot(), self.state
            if state.compared and state.compared not in study.facts and state.compared != self._building:
                self.compare(None)
                state = self.state
            baseline = self._baseline or chrome.baseline(study)
            if state.baseline != baseline:
                self._put(dataclasses.replace(state, baseline=baseline))
            for name in {state.variant, state.compared} & set(self._made):
                made = self._made[name]
                if made.result is study.facts.get(name) and made.guilty is not ranking_of(study, name):
                    self._renew(made, made.result)
            self.chips = [plain(c) for c in chrome.chips(study, baseline=baseline, building=building)]
            self.controls = dict(offer.controls(study.model, self.choice))
            self.status = [dict(s) for s in chrome.status(study, state.variant)]
            self.data = dict(chrome.data_state(study))
            self.notice = offer.notice(self.study.model)

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


def _observed(study: Snapshot) -> tuple[object, ...]:
    """What the answers rest on that all variants share: other where they are."""
    seen = study.calibration
    told = seen and (seen.samples, seen.wanted, seen.complete, seen.source, seen.ranking)
    return study.model, study.task, told, [v.calibrator for v in study.variants.values()]
