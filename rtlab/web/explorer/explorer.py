"""The Explorer: choice, variants, two linked graphs, charts, table and panel in one cell.

One widget model holds the shared view state, so that selection and hover light up in the browser without a round
trip to the kernel. Builds run on a thread, so that the kernel stays free for commands such as Cancel.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from rtlab.analyses import panels
from rtlab.analyses.panel_context import PanelContext
from rtlab.documents import commands
from rtlab.documents.commands import AskPanel, Choice, Command
from rtlab.documents.contract import FileSent, NetronStarted, Panel, PanelAnswered, PlotlySent
from rtlab.errors import RtlabError
from rtlab.quantize import export
from rtlab.study.session import Session
from rtlab.web.explorer import netron
from rtlab.web.explorer.open_commands import Opening
from rtlab.web.page import charts as figures
from rtlab.web.page import controls as offer
from rtlab.web.page.layers import layers_model


class Explorer(Opening):
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
        super().__init__("explorer.js", study, baseline=baseline or "", height=height or 0)
        if files is not None:
            several = (files,) if isinstance(files, (str, Path)) else files
            self._folders = tuple(Path(f).expanduser() for f in several)
        first = next((v for n, v in study.state.variants.items() if not self._is_recorded(n)), None)
        self.choice = offer.build_choice(study.model, first or offer.default_variant(study.model))
        self._open()
        study.views.add(self)
        self.observe(self._on_choice, "choice")
        self.observe(self._on_view, "view")

    def panel(self, name: str, **settings: object) -> Panel:
        """What a panel tells of the variant shown, as the page gets it.

        Args:
            name: A panel, such as ``memory``.
            settings: What is chosen in it, by key.

        Raises:
            VariantError: there is no such panel, or nothing is built.
        """
        return self._answer(name, self.state.variant, {k: str(v) for k, v in settings.items()})

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
            data = bytes(layers_model(self.study[variant].facts).SerializeToString())
            netron_model = netron.NetronModel(f"{model.name} {variant}", lambda: io.BytesIO(data))
        else:
            netron_model = netron.make_netron_model(model)
        try:
            return netron.serve(self.study, netron_model, variant or "")
        except OSError as error:
            raise RtlabError(
                f'Cannot open "{netron_model.name}" in Netron: this machine gave no port to serve it on '
                f"({error.strerror}). Close other servers, or open the file in the Netron application."
            ) from error

    def _action(self, command: Command, buffers: Sequence[Any]) -> Callable[[], object]:  # noqa: C901, PLR0912 - one line each
        match command:
            case commands.BuildChoice():
                return lambda: self._run_choice(command.choice)
            case commands.BuildAgain():
                return lambda: self._rebuild(command.variant)
            case commands.MeasureMore():
                return lambda: self.measure(command.variant)
            case commands.CancelWork():
                return self.cancel
            case commands.ShowVariant():
                return lambda: self.show(command.variant)
            case commands.CompareVariant():
                return lambda: self.compare(command.variant)
            case commands.SetBaseline():
                return lambda: self._set_baseline(command.variant)
            case commands.RemoveVariant():
                return lambda: self._remove(command.variant)
            case commands.OpenNamed():
                return lambda: self._open_from_page(command.path)
            case commands.NameSizes():
                return lambda: self.name_sizes(command.shapes)
            case commands.ReadDropped():
                return lambda: self._read_dropped_files(command, buffers)
            case commands.OpenNetron():
                return lambda: self._tell(NetronStarted(self.open_in_netron(command.variant)))
            case commands.InspectNode():
                return lambda: self._inspect_from_page(command.node)
            case commands.ExtractNodes():
                return lambda: self._extract(command.nodes)
            case commands.ObserveRanges():
                return self.calibrate
            case commands.RankCalibrators():
                return self.rank
            case commands.RepairPlacement():
                return lambda: self.repair(*command.findings)
            case commands.SaveFile():
                return lambda: self._save(command.variant, command.what)
            case commands.AskPanel():
                return lambda: self._panel(command)
            case commands.StartWork():
                return lambda: self._start_panel_work(command)
            case commands.TellPictured():
                return self._rendered_event.set
            case commands.DismissFailure():
                return self._dismiss
            case commands.FetchPlotly():
                return lambda: self._tell(PlotlySent(), figures.plotly_script())
            case commands.FetchParcel():
                return super()._action(command, buffers)

    def _run_choice(self, choice: Choice) -> None:
        """Build what the browser had chosen when the button was pressed; the trait may still be on its way."""
        self.choice = {**self.choice, **choice}
        self.run()

    def _dismiss(self) -> None:
        self.failure = None

    def _answer(self, name: str, variant: str, settings: Mapping[str, str]) -> Panel:
        study = self.study.state
        result = self.study[variant].facts
        # Beside itself, a variant shows nothing; the one in the third pane was chosen for that.
        other = next((n for n in (self.state.compared, self.state.baseline) if n and n != variant), "")
        return panels.render_panel(name, PanelContext(study, result, study.results.get(other), settings))

    def _panel(self, command: AskPanel) -> None:
        # What the page asks about may be gone by now; it asks anew when it knows.
        if command.panel in panels.PANELS and command.variant in self.study.state.results:
            self._tell(
                PanelAnswered(command.id, self._answer(command.panel, command.variant, command.settings))
            )

    def _save(self, variant: str, what: Literal["onnx", "scales", "cache"]) -> None:
        """Send a file of a built variant."""
        model, result = self.study.model, self.study[variant].facts
        prepared_variant = result.prepared
        match what:
            case "onnx":
                end, content = "onnx", prepared_variant.model.bytes()
            case "scales":
                end, content = (
                    "scales.json",
                    export.format_scales(model, result.variant, prepared_variant).encode("utf-8"),
                )
            case "cache":
                end, content = (
                    "cache",
                    export.build_calibration_cache(result.variant, prepared_variant).encode(),
                )
        self._tell(FileSent(f"{export.make_file_stem(model, result.variant)}.{end}"), content)

    def _extract(self, nodes: Sequence[str]) -> None:
        """Send the selected nodes as a file; pills among them come along as what they stand for."""
        model = self.study.model
        part = model.extract(i for i in nodes if i in model.places)
        self._tell(FileSent(f"{part.name}.onnx"), part.bytes())
