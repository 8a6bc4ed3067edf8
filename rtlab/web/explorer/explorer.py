"""The Explorer: choice, variants, two linked graphs, charts, table and panel in one cell.

One widget model holds the shared view state, so that selection and hover light up in the browser without a round
trip to the kernel. Builds run on a thread, so that the kernel stays free for commands such as Cancel.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rtlab.analyses import panels
from rtlab.analyses.panel_context import PanelContext
from rtlab.documents import commands
from rtlab.documents.commands import AskPanel, Command
from rtlab.documents.contract import FileSent, NetronStarted, Panel, PanelAnswered, PlotlySent
from rtlab.errors import RtlabError
from rtlab.quantize import export
from rtlab.study.session import Session
from rtlab.web.explorer import netron
from rtlab.web.explorer.build_commands import BuildCommands
from rtlab.web.explorer.open_commands import OpenCommands
from rtlab.web.explorer.task_runner import TaskRunner
from rtlab.web.explorer.view_sync import ViewSync
from rtlab.web.explorer.widget import ExplorerWidget
from rtlab.web.page import charts as figures
from rtlab.web.page import controls as offer
from rtlab.web.page.state import ViewState

if TYPE_CHECKING:
    from typing_extensions import Self


class Explorer(ExplorerWidget):
    """See what a compiler did to a model, in one cell.

    ``state`` is what the panes show; ``select`` changes it from Python; ``compare`` shows a second engine beside the
    first; ``run`` builds the chosen variant, as the Build button does; ``wait`` blocks until that is done.
    ``steps`` is the presentation, a list of plain dicts: recorded on the page, or set from Python;
    ``study.report("report.html", steps=explorer.steps)`` puts it into a report.
    """

    def __init__(
        self,
        study: Session,
        *,
        baseline: str | None = None,
        height: int | None = None,
        files: str | Path | Iterable[str | Path] | None = None,
    ) -> None:
        several = (files,) if isinstance(files, (str, Path)) else files
        folders = None if several is None else tuple(Path(f).expanduser() for f in several)
        self._tasks = TaskRunner(self)
        self._view_sync = ViewSync(self, self._tasks, study, baseline or "")
        self._builds = BuildCommands(self._view_sync)
        self._opens = OpenCommands(self._builds, folders)
        super().__init__(
            "explorer.js", handle=self._obey, report_error=self._tasks.report_error, height=height or 0
        )
        planned = study.state.variants.items()
        first = next((variant for name, variant in planned if not self._view_sync.is_recorded(name)), None)
        self.choice = offer.build_choice(study.model, first or offer.default_variant(study.model))
        self._opens.open()
        study.views.add(self._view_sync)
        self.observe(self._builds.check_choice, "choice")
        self.observe(self._view_sync.check_view, "view")

    def __repr__(self) -> str:
        return f"<Explorer {self.study.model.name}: {len(self.study)} variants>"

    @property
    def study(self) -> Session:
        """The study on screen."""
        return self._view_sync.study

    @property
    def state(self) -> ViewState:
        """What the panes show now."""
        return self._view_sync.state

    def load(self, model: str | Path | bytes, *, name: str | None = None) -> Self:
        """Open another model, or a file of an engine: a sample's name, a path, or the bytes of a file; on a thread."""
        self._opens.load(model, name=name)
        return self

    def read(self, *files: str | Path, name: str | None = None, **read_options: Any) -> Self:
        """Read files of one engine from another machine on a thread, and show it; an ONNX model among them is opened.

        Args:
            files: Files whose kind is found by what is in them.
            name: What the variant is called; by default after the file that describes the engine.
            read_options: What ``Study.read`` takes beside.
        """
        paths = [Path(f) for f in files]
        self._tasks.start(
            lambda progress: self._opens.read(paths, name, read_options, progress), "read the files"
        )
        return self

    def run(self) -> Self:
        """Build the chosen variant on a thread and show it; one that is built comes back at once."""
        self._builds.run()
        return self

    def select(self, *nodes: str) -> None:
        """Select nodes by id in every pane.

        Raises:
            ModelError: there is no such node.
        """
        self._view_sync.select(*nodes)

    def arrange(self, **changes: object) -> Self:
        """Group, colour and place, as the menus of the panes do: see ``ViewState.arrange``."""
        self._view_sync.arrange(**changes)
        return self

    def show(self, name: str) -> None:
        """Show a variant that is built.

        Raises:
            VariantError: it is not built; or the error of its failed build.
        """
        self._view_sync.show(name)

    def compare(self, name: str | None) -> None:
        """Show the engine of a second variant in a third pane; None takes that pane away.

        Raises:
            VariantError: it is not built; or the error of its failed build.
        """
        self._view_sync.compare(name)

    def wait(self, timeout: float | None = None) -> Self:
        """Block until the running build is done; a failure is shown in the Explorer, and in ``failure``."""
        self._tasks.wait(timeout)
        return self

    def cancel(self) -> None:
        """Stop the running build; finished variants stay."""
        self._tasks.cancel()

    def panel(self, name: str, **settings: object) -> Panel:
        """A panel about the variant shown, as the page gets it.

        Args:
            name: A panel, such as ``memory``.
            settings: What is chosen in it, by key.

        Raises:
            VariantError: there is no such panel, or nothing is built.
        """
        return self._answer(name, self.state.variant, {k: str(v) for k, v in settings.items()})

    def open_in_netron(self) -> str:
        """Show the model in Netron; returns the address of the page.

        The address is one of the kernel's machine, cannot be guessed, and is good for as long as the study lives. The
        page reads this model and the files with its weights, and can connect to nothing else.

        Raises:
            RtlabError: no port is free.
        """
        model = self.study.model
        try:
            return netron.serve(self.study, model)
        except OSError as error:
            raise RtlabError(
                f'Cannot open "{model.name}" in Netron: this machine gave no port to serve it on '
                f"({error.strerror}). Close other servers, or open the file in the Netron application."
            ) from error

    def _obey(self, command: Command, buffers: Sequence[Any]) -> None:  # noqa: C901, PLR0912 - two lines each
        builds, opens, view = self._builds, self._opens, self._view_sync
        match command:
            case commands.BuildChoice():
                # What the browser had chosen when the button was pressed: the trait may still be on its way.
                self.choice = {**self.choice, **command.choice}
                builds.run()
            case commands.BuildAgain():
                builds.rebuild(command.variant)
            case commands.MeasureMore():
                builds.measure(command.variant)
            case commands.CancelWork():
                self._tasks.cancel()
            case commands.ShowVariant():
                view.show(command.variant)
            case commands.CompareVariant():
                view.compare(command.variant)
            case commands.SetBaseline():
                builds.set_baseline(command.variant)
            case commands.RemoveVariant():
                builds.remove(command.variant)
            case commands.OpenNamed():
                opens.open_from_page(command.path)
            case commands.NameSizes():
                opens.name_sizes(command.shapes)
            case commands.ReadDropped():
                opens.read_dropped_files(command, buffers)
            case commands.OpenNetron():
                self.tell(NetronStarted(self.open_in_netron()))
            case commands.InspectNode():
                view.inspect(command.node)
            case commands.ExtractNodes():
                self._extract(command.nodes)
            case commands.ObserveRanges():
                self._tasks.start(lambda p: self.study.calibration.observe(progress=p), command.action)
            case commands.RankCalibrators():
                self._tasks.start(lambda p: self.study.calibration.rank(progress=p), command.action)
            case commands.RepairPlacement():
                opens.repair_placement(command.findings)
            case commands.SaveFile():
                self._save(command.variant)
            case commands.AskPanel():
                self._panel(command)
            case commands.StartWork():
                builds.start_panel_work(command)
            case commands.DismissFailure():
                self.failure = None
            case commands.FetchPlotly():
                self.tell(PlotlySent(), figures.plotly_script())

    def _answer(self, name: str, variant: str, settings: Mapping[str, str]) -> Panel:
        study = self.study.state
        result = self.study[variant].facts
        # Beside itself, a variant shows nothing; the one in the third pane was chosen for that.
        other = next((n for n in (self.state.compared, self.state.baseline) if n and n != variant), "")
        return panels.render_panel(name, PanelContext(study, result, study.results.get(other), settings))

    def _panel(self, command: AskPanel) -> None:
        # The variant may be gone by now; then the page requests another one.
        if command.panel in panels.PANELS and command.variant in self.study.state.results:
            self.tell(
                PanelAnswered(command.id, self._answer(command.panel, command.variant, command.settings))
            )

    def _save(self, variant: str) -> None:
        """Send the prepared model of a built variant."""
        result = self.study[variant].facts
        stem = export.make_file_stem(self.study.model, result.variant)
        self.tell(FileSent(f"{stem}.onnx"), result.prepared.model.bytes())

    def _extract(self, nodes: Sequence[str]) -> None:
        """Send the selected nodes as a file; pills among them come along as what they stand for."""
        model = self.study.model
        part = model.extract(i for i in nodes if i in model.places)
        self.tell(FileSent(f"{part.name}.onnx"), part.bytes())
