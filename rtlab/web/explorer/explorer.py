"""The Explorer: choice, variants, two linked graphs, charts, table and panel in one cell.

One widget model holds the shared view state, so that selection and hover light up in the browser without a round
trip to the kernel. Builds run on a thread, so that the kernel stays free for commands such as Cancel.
"""

from __future__ import annotations

import datetime
import functools
import html
import http
import http.server
import importlib.metadata
import io
import re
import secrets
import shutil
import socketserver
import threading
import urllib.parse
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from rtlab.analyses import panels
from rtlab.analyses.panel_context import PanelContext
from rtlab.documents import commands
from rtlab.documents.commands import AskPanel, Command
from rtlab.documents.contract import FileSent, NetronStarted, Panel, PanelAnswered, PlotlySent
from rtlab.errors import RtlabError
from rtlab.quantize import export
from rtlab.study.session import Session
from rtlab.web.explorer.open_commands import BuildCommands, OpenCommands
from rtlab.web.explorer.view_sync import ViewSync
from rtlab.web.explorer.widget import ExplorerWidget, TaskRunner, is_executed_unwatched
from rtlab.web.page import charts as figures
from rtlab.web.page import controls as offer
from rtlab.web.page.state import ViewState
from rtlab.web.page.still import draw_still

if TYPE_CHECKING:
    from typing_extensions import Self

    from rtlab.core.model import Model

_LOOPBACK = "127.0.0.1"
#: Seconds after which a visitor who sends or takes nothing is left, and a picture is not waited for.
_PATIENCE = 30
#: Netron shows its page with styles written in it, draws pictures to export them, and works in a thread of its own.
_POLICY = (
    "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
#: Where the package lies; it is not imported, since its server is not used.
_FOLDER = Path(str(importlib.metadata.distribution("netron").locate_file("netron")))
#: What of the package belongs to the page, and types that a browser insists on.
_PAGE = {".html", ".js", ".css", ".json", ".png", ".ico", ".svg", ".woff", ".woff2", ".ttf"}
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".html": "text/html"}


def serve_netron(owner: object, model: Model) -> str:
    """Serve the page of a model for as long as its owner lives, at one address; returns that.

    The model is read from its file; where that has changed, it is as it was loaded.

    Args:
        owner: When it is gone, so is the page.
        model: The model.

    Raises:
        OSError: no port of this machine is free.
        ModelError: files that hold its weights have changed.
    """
    name, open_model, origin = model.name, lambda: io.BytesIO(model.bytes()), model.origin
    page: dict[str, Callable[[], IO[bytes]]] = {
        path.name: _opener(path) for path in _FOLDER.iterdir() if path.suffix in _PAGE and path.is_file()
    }
    if origin is not None:
        name = origin.stem
        page |= {f"data/{beside}": _opener(origin.parent / beside) for beside in model.beside}
    elif model.beside:
        # The error says why it cannot be had, in place of an empty page.
        model.proto()
    # A name under which Netron takes it for ONNX.
    stem = re.sub(r"[^A-Za-z0-9._ -]", "_", name.removesuffix(".onnx")).strip(". ")
    file = f"{stem[:100] or 'model'}.onnx"
    page[f"data/{file}"] = open_model if origin is None else _opener(origin)
    page[""] = lambda: io.BytesIO(_render_page(name, file))
    return _start_server().add(owner, page)


def _opener(path: Path) -> Callable[[], IO[bytes]]:
    return lambda: path.open("rb")


@functools.cache
def _start_server() -> _Server:
    """The server of this process."""
    server = _Server((_LOOPBACK, 0), _Handler)
    threading.Thread(target=server.serve_forever, name="rtlab-netron", daemon=True).start()
    return server


class _Server(http.server.ThreadingHTTPServer):
    """All pages of this process."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        #: What opens each file of a page, by its path; no name from outside is ever made a path.
        self.pages: dict[str, Mapping[str, Callable[[], IO[bytes]]]] = {}
        self._tokens: weakref.WeakKeyDictionary[object, str] = weakref.WeakKeyDictionary()

    def server_bind(self) -> None:
        """Bind, without looking up this machine's name on the network as the base class does."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = _LOOPBACK, int(self.server_address[1])

    @property
    def hosts(self) -> set[str]:
        """The hosts that a browser names which came here directly."""
        return {f"{name}:{self.server_port}" for name in (_LOOPBACK, "localhost")}

    def add(self, owner: object, page: Mapping[str, Callable[[], IO[bytes]]]) -> str:
        """The address of a page."""
        if owner not in self._tokens:
            self._tokens[owner] = secrets.token_urlsafe(24)
            weakref.finalize(owner, self.pages.pop, self._tokens[owner], None)
        token = self._tokens[owner]
        self.pages[token] = page
        return f"http://{_LOOPBACK}:{self.server_port}/{token}/"

    def handle_error(self, *_: object) -> None:
        """Nothing: a browser that closes a connection is no error to print in a notebook."""


class _Handler(http.server.BaseHTTPRequestHandler):
    """Answers for the page, its parts, the model and the files that it names."""

    server: _Server
    server_version, sys_version = "rtlab", ""
    timeout = _PATIENCE

    def do_GET(self) -> None:
        """Send the page, a part of it, the model or a file of its weights."""
        if not self._is_same_origin():
            self._refuse(http.HTTPStatus.FORBIDDEN)
            return
        _, _, url_path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path).partition("/")
        token, slash, path = url_path.partition("/")
        open_file = self.server.pages.get(token, {}).get(path) if slash else None
        if open_file is None:
            self._refuse(http.HTTPStatus.NOT_FOUND)
            return
        try:
            with open_file() as content:
                size = content.seek(0, io.SEEK_END)
                content.seek(0)
                kind = "text/html; charset=utf-8" if not path else _TYPES.get(Path(path).suffix)
                self.send_response(http.HTTPStatus.OK)
                self.send_header("Content-Type", kind or "application/octet-stream")
                self.send_header("Content-Length", str(size))
                if not path:
                    # Otherwise the page looks up the visitor's country at a service.
                    self.send_header("Set-Cookie", f"consent=1; Path=/{token}/; SameSite=Strict")
                self.end_headers()
                shutil.copyfileobj(content, self.wfile)
        except ConnectionError:
            self.close_connection = True
        except Exception:  # noqa: BLE001 - a model that cannot be read any more is not there
            self._refuse(http.HTTPStatus.NOT_FOUND)

    def _is_same_origin(self) -> bool:
        """Whether the browser came by this server's own name, and no page of another brought it here."""
        origin = self.headers.get("Origin")
        hosts = self.server.hosts
        return self.headers.get("Host", "") in hosts and (
            origin is None or origin in {f"http://{h}" for h in hosts}
        )

    def _refuse(self, status: http.HTTPStatus) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def end_headers(self) -> None:
        """Every answer says what its page may do; a thread of the page's obeys its own."""
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class calls it so
        """Nothing: it would reach the cell."""


def _render_page(name: str, file: str) -> bytes:
    """Netron's page, with what it opens."""
    page = (_FOLDER / "index.html").read_text(encoding="utf-8")
    meta_fields = {
        "type": "Python",
        "version": importlib.metadata.version("netron"),
        "date": f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M:%S}",
        "file": f"/data/{urllib.parse.quote(file)}",
        "name": name,
        "identifier": file,
    }
    page = re.sub(r'<meta name="(version|date|type|file|name|identifier)" content="[^"]*">\s*', "", page)
    tags = (f'<meta name="{key}" content="{html.escape(value)}">\n' for key, value in meta_fields.items())
    return page.replace("<title>", f"{''.join(tags)}<title>", 1).encode()


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

    def draw_still(self) -> str:
        """The variants as a table, the model and the engine as a picture; where nobody watches, after the build."""
        if is_executed_unwatched():
            self.wait(_PATIENCE)
        return draw_still(self.study.state, self.state.variant)

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
            return serve_netron(self.study, model)
        except OSError as error:
            raise RtlabError(
                f'Cannot open "{model.name}" in Netron: this machine gave no port to serve it on '
                f"({error.strerror}). Close other servers, or open the file in the Netron application."
            ) from error

    def _obey(self, command: Command, buffers: Sequence[Any]) -> None:  # noqa: C901, PLR0912, PLR0915 - two lines each
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
                opens.name_sizes(command.sizes)
            case commands.ReadDropped():
                opens.read_dropped_files(command, buffers)
            case commands.OpenNetron():
                self.tell(NetronStarted(self.open_in_netron()))
            case commands.InspectNode():
                view.inspect(command.node)
            case commands.ExtractNodes():
                self._extract(command.nodes)
            case commands.CutModel():
                opens.cut(command.until)
            case commands.ObserveRanges():
                self._tasks.start(lambda p: self.study.calibration.observe(progress=p), command.action)
            case commands.RankCalibrators():
                self._tasks.start(lambda p: self.study.calibration.rank(progress=p), command.action)
            case commands.RepairPlacement():
                opens.repair_placement(command.findings)
            case commands.SaveStudy():
                opens.save_study(self.tell)
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
