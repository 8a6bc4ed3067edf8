"""Real JupyterLab, Notebook 7, Voila and marimo on loopback and system Chromium. Everything waits for conditions."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import textwrap
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from urllib.parse import quote, urlsplit

import nbformat
import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Request,
    ViewportSize,
    WebSocket,
    sync_playwright,
)
from playwright.sync_api import Error as PlaywrightError

import rtlab
from explorer import Explorer

LOOPBACK = {"127.0.0.1", "localhost", "::1"}
WIDGET = "window.jupyterapp.shell.currentWidget"

#: How long a condition may take before it counts as broken, in milliseconds.
PATIENCE = 60_000
VIEWPORT: ViewportSize = {"width": 1440, "height": 900}
FAILED = pytest.StashKey[bool]()
#: What a server and its kernels say, in the server's home; so many lines of it are shown of a failure.
LOG, MOST_LINES = "jupyter.log", 20
#: So many notebooks are opened in one page, one after the other.
NOTEBOOKS = 40
#: Milliseconds between two looks at a page. Without them Playwright looks at every frame, and has each one drawn.
LOOK = 50

#: Leaves a kernel as new but for the modules that it has imported, or raises.
TIDY = """
import ipywidgets, threading
for _widget in list(ipywidgets.widgets.widget._instances.values()):
    if hasattr(_widget, "cancel"):
        _widget.cancel()
for _thread in threading.enumerate():
    if _thread.name in {"rtlab-build", "rtlab-inspect"}:
        _thread.join(5)
        assert not _thread.is_alive(), _thread.name
ipywidgets.Widget.close_all()
get_ipython().reset(new_session=False)
"""


def write_notebook(path: Path, cells: Sequence[str]) -> Path:
    """A notebook of code cells."""
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    document = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(source) for source in cells], metadata=kernel
    )
    nbformat.write(document, path)
    return path


@dataclasses.dataclass(frozen=True)
class Lab:
    """A running server: address, token, the folder it serves, the path under which a notebook opens, and its log."""

    url: str
    token: str
    root: Path
    tree: str
    log: Path


class LabPage:
    """One JupyterLab page.

    ``left_machine`` holds the address of every request that was not for loopback (it found no host), and
    ``console_errors`` what the page said on its console as an error. Both are for a test to compare with [].
    """

    def __init__(self, lab: Lab, page: Page) -> None:
        self.lab = lab
        self.page = page
        self.left_machine: list[str] = []
        self.console_errors: list[str] = []
        self.shown = 0
        self._cleared = False
        self._kernel: dict[str, str] | None = None
        self._alone = False
        page.set_default_timeout(PATIENCE)
        # Not routed: that would take the cache from the browser, which reads JupyterLab's scripts for each page.
        page.on("request", self._request)
        page.on("websocket", self._websocket)
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.console_errors.append(str(error)))

    def _request(self, request: Request) -> None:
        url = urlsplit(request.url)
        if url.scheme not in {"data", "blob"} and url.hostname not in LOOPBACK:
            self.left_machine.append(request.url)

    def _websocket(self, socket_: WebSocket) -> None:
        if urlsplit(socket_.url).hostname not in LOOPBACK:
            self.left_machine.append(socket_.url)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.console_errors.append(f"{message.text} ({message.location.get('url', '')})")

    def open(self, notebook: str | Path | list[str], *, alone: bool = False) -> None:
        """Open a notebook, given as a file or as the sources of its code cells, and wait for its kernel.

        On a page that others used it is their kernel, tidied up, unless it is to have one ``alone``: whose cells change
        rtlab itself.
        """
        path = self.place(notebook)
        if alone:
            self.end_kernels()
        if self._cleared:
            self._cleared = False
            where = {"path": path.name, "factory": "Notebook", "kernel": self._kernel}
            self.page.evaluate(
                "where => { window.jupyterapp.commands.execute('docmanager:open', where) }", where
            )
            self.wait(f"path => {WIDGET}?.context?.path === path", path.name)
        else:
            self.page.goto(f"{self.lab.url}/{self.lab.tree}/{quote(path.name)}?reset&token={self.lab.token}")
        self.page.wait_for_selector(".jp-Notebook .jp-Cell")
        self.wait_idle()
        self._alone = alone

    def wait(self, condition: str, argument: object = None, timeout: float = PATIENCE) -> None:
        """Wait until a function of the page is true."""
        self.page.wait_for_function(condition, arg=argument, timeout=timeout, polling=LOOK)

    def without_subshells(self) -> None:
        """From now on what this page says waits for the cell that runs, as in hosts other than Jupyter's own."""
        kernel = f"{WIDGET}.sessionContext.session.kernel"
        self.page.evaluate(f"() => {{ {kernel}.commsOverSubshells = 'disabled' }}")

    def end_kernels(self) -> None:
        """End every kernel of the server."""
        self._kernel = None
        # Not sessions: of those that have one kernel the second is not found when the first has ended it.
        self.page.evaluate("() => window.jupyterapp?.serviceManager.kernels.shutdownAll()")

    def forget(self) -> None:
        """Forget rtlab's code, which a page keeps for all that it shows, as if nothing had been shown."""
        self.page.evaluate("() => window.rtlabScripts?.clear()")

    def _tidied(self) -> dict[str, str] | None:
        """The kernel of the notebook in front, as new but for what it has imported, where it can be that."""
        if self._alone:
            return None
        return self.page.evaluate(
            f"""async code => {{
              const kernel = {WIDGET}?.sessionContext?.session?.kernel;
              if (kernel?.status !== 'idle') return null;
              const reply = await kernel.requestExecute({{code, silent: true}}).done;
              return reply.content.status === 'ok' ? {{id: kernel.id, name: kernel.name}} : null;
            }}""",
            TIDY,
        )

    def clear(self) -> bool:
        """Close all notebooks and tidy up their kernel, so that the next test finds them as new; whether it could.

        What JupyterLab, a kernel and a compiler's process load when they start is most of what a test would take with
        a page and a kernel of its own.
        """
        self.page.set_viewport_size(VIEWPORT)
        try:
            if self.page.evaluate("() => document.body.dataset.jpThemeLight !== 'true'"):
                self.theme(dark=False)
            self._kernel = self._tidied()
            self.page.evaluate(
                """() => {
                  for (const widget of [...window.jupyterapp.shell.widgets('main')]) {
                    if (widget.context) widget.context.model.dirty = false;
                    widget.close();
                  }
                }""",
            )
            if self._kernel is None:
                self.end_kernels()
            self.wait("() => !document.querySelector('.jp-Notebook, .jp-Dialog')", timeout=10_000)
        except PlaywrightError:
            return False
        self.left_machine.clear()
        self.console_errors.clear()
        self._cleared = True
        return True

    def visit(self, notebook: str | Path | list[str]) -> None:
        """Open a notebook where no kernel can be reached from the page: its outputs alone."""
        self.page.goto(f"{self.lab.url}/{self.lab.tree}/{quote(self.place(notebook).name)}")

    def place(self, notebook: str | Path | list[str]) -> Path:
        """Put a notebook, given as a file or as the sources of its code cells, where the server finds it."""
        if isinstance(notebook, list):
            return write_notebook(self.lab.root / f"drawn_{secrets.token_hex(4)}.ipynb", notebook)
        return Path(shutil.copy(notebook, self.lab.root))

    def wait_idle(self, timeout: float = PATIENCE) -> None:
        """Wait until the kernel has nothing to do. ``timeout`` is in milliseconds, here and below."""
        self.wait(f"() => {WIDGET}?.sessionContext?.session?.kernel?.status === 'idle'", timeout=timeout)

    def run_all(self, timeout: float = 2 * PATIENCE) -> None:
        """Run all cells and wait until each has run; fails with the traceback of a cell that raised."""
        self.page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-all-cells') }")
        self.wait(
            f"""() => {{
              const cells = {WIDGET}.content.widgets.filter(cell => cell.model.type === 'code');
              const errors = cells.flatMap(cell => cell.model.outputs.toJSON())
                .some(output => output.output_type === 'error');
              const all = cells.every(
                cell => cell.model.executionCount !== null || !cell.model.sharedModel.source);
              return errors || (all && {WIDGET}.sessionContext.session.kernel.status === 'idle');
            }}""",
            timeout=timeout,
        )
        raised = [o for cell in self.outputs() for o in cell if o["output_type"] == "error"]
        assert [] == [f"{o['ename']}: {o['evalue']}\n" + "\n".join(o["traceback"]) for o in raised]

    def outputs(self) -> list[list[dict[str, object]]]:
        """The outputs of each cell as the notebook file would hold them; a text cell has none."""
        return self.page.evaluate(
            f"() => {WIDGET}.content.widgets.map(c => c.model.outputs ? c.model.outputs.toJSON() : [])"
        )

    def output_text(self, cell: int) -> str:
        """What a person reads below a cell."""
        return self.page.evaluate(f"i => {WIDGET}.content.widgets[i].outputArea.node.innerText", cell)

    def python(self, expression: str) -> object:
        """The value of an expression in the kernel of the notebook or file in front, which must be JSON."""
        text = self.page.evaluate(
            f"""async expression => {{
              const tab = {WIDGET};
              const kernel = (tab.sessionContext ?? tab.context.sessionContext).session.kernel;
              const request = {{code: '', silent: true, user_expressions: {{value: expression}}}};
              const reply = await kernel.requestExecute(request).done;
              const value = reply.content.user_expressions.value;
              if (value.status !== 'ok') throw new Error(value.ename + ': ' + value.evalue);
              return value.data['text/plain'];
            }}""",
            f"__import__('json').dumps({expression})",
        )
        return json.loads(ast.literal_eval(text))

    def wait_python(self, expression: str, timeout: float = PATIENCE) -> None:
        """Wait until an expression is true in the notebook's kernel."""
        deadline, pause = time.monotonic() + timeout / 1000, 25
        while not self.python(f"bool({expression})"):
            assert time.monotonic() < deadline, f"{expression} did not become true in {timeout / 1000:.0f} s"
            # Each question makes the kernel busy and JupyterLab paint that, which takes from what is waited for.
            self.page.wait_for_timeout(pause)
            pause = min(2 * pause, 400)

    def theme(self, *, dark: bool) -> None:
        """Change JupyterLab's theme and wait until it is there."""
        name = "JupyterLab Dark" if dark else "JupyterLab Light"
        self.page.evaluate(
            "theme => window.jupyterapp.commands.execute('apputils:change-theme', {theme})", name
        )
        self.page.wait_for_selector(f'body[data-jp-theme-light="{str(not dark).lower()}"]', state="attached")
        # JupyterLab covers the page with a splash until the new theme's styles are there.
        self.page.wait_for_selector("#jupyterlab-splash", state="detached")


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """System Chromium; without it the test skips, and CI installs it."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip(
            "Chromium is not installed here and tests/run could not install it: apt-get install chromium"
        )
    flags = (
        "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
        "--disable-component-update --disable-sync"
    )
    # Whatever a page or Chromium itself asks of another machine finds no host; of a page it is recorded too.
    rules = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=[*flags.split(), rules])
        yield browser
        browser.close()


def _variables(home: Path) -> dict[str, str]:
    """An environment in which Jupyter finds nothing of this machine's user."""
    names = (
        "JUPYTER_CONFIG_DIR JUPYTER_DATA_DIR JUPYTER_RUNTIME_DIR IPYTHONDIR JUPYTERLAB_SETTINGS_DIR "
        "JUPYTERLAB_WORKSPACES_DIR"
    )
    return {**os.environ, "HOME": str(home), **{v: str(home / v.lower()) for v in names.split()}}


def _port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def _served(command: list[str], root: Path, home: Path, ready: str) -> Iterator[None]:
    """A server while the block runs; ``ready`` is an address that it answers once it is up."""
    log = home / LOG
    with log.open("wb") as spoken:
        server = subprocess.Popen(
            command, cwd=root, env=_variables(home), stdin=subprocess.DEVNULL, stdout=spoken,
            stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        _wait_for_server(server, ready, log)
        yield
    finally:
        server.terminate()
        try:
            server.wait(5)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


@contextlib.contextmanager
def _jupyter(module: str, tree: str, temporary: pytest.TempPathFactory) -> Iterator[Lab]:
    """JupyterLab or Notebook 7 as a user starts it, with a home of its own."""
    home, root = temporary.mktemp("home"), temporary.mktemp("root")
    token, port = secrets.token_hex(16), _port()
    # A first start asks whether to fetch news, over the corner of every picture.
    asks = home / "jupyterlab_settings_dir/@jupyterlab/apputils-extension/notification.jupyterlab-settings"
    asks.parent.mkdir(parents=True)
    asks.write_text('{"fetchNews": "false"}')
    settings = f"""--no-browser --allow-root --expose-app-in-browser --ip=127.0.0.1 --ServerApp.port={port}
        --ServerApp.port_retries=0 --IdentityProvider.token={token} --LabApp.news_url=None
        --LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate --LabApp.extension_manager=readonly"""
    # This tree's extension, whatever the environment has of an earlier installation.
    extensions = Path(rtlab.__file__).parent / "static" / "labextensions"
    arguments = [
        *settings.split(), f"--ServerApp.root_dir={root}", f"--LabApp.extra_labextensions_path={extensions}",
    ]  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    with _served([sys.executable, "-m", module, *arguments], root, home, f"{url}/api/status?token={token}"):
        yield Lab(url, token, root, tree, home / LOG)


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """JupyterLab."""
    with _jupyter("jupyterlab", "lab/tree", tmp_path_factory) as served:
        yield served


@pytest.fixture(scope="session")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Notebook 7."""
    with _jupyter("notebook", "notebooks", tmp_path_factory) as served:
        yield served


@contextlib.contextmanager
def _voila(temporary: pytest.TempPathFactory, cells: Sequence[str], *options: str) -> Iterator[Lab]:
    """Voila, which runs a notebook for each visitor and shows its outputs alone; ``cells`` are ``first.ipynb``."""
    home, root = temporary.mktemp("home"), temporary.mktemp("root")
    write_notebook(root / "first.ipynb", cells)
    port = _port()
    settings = ["--no-browser", "--Voila.ip=127.0.0.1", f"--port={port}", *options]
    command = [sys.executable, "-m", "voila", *settings, str(root)]
    url = f"http://127.0.0.1:{port}"
    with _served(command, root, home, url):
        yield Lab(url, "", root, "voila/render", home / LOG)


@pytest.fixture
def voila(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Voila that serves a folder."""
    with _voila(tmp_path_factory, []) as served:
        yield served


@contextlib.contextmanager
def _marimo(temporary: pytest.TempPathFactory, cells: Sequence[str], mode: str) -> Iterator[Lab]:
    """Marimo that serves ``cells``: "run" shows their outputs to each visitor, "edit" is a notebook."""
    home, root = temporary.mktemp("home"), temporary.mktemp("root")
    # A notebook runs its cells when it is opened, as an app does.
    (root / "pyproject.toml").write_text("[tool.marimo.runtime]\nauto_instantiate = true\n", encoding="utf-8")
    app = root / "app.py"
    body = "".join(f"@app.cell\ndef _():\n{textwrap.indent(cell, '    ')}\n    return\n\n" for cell in cells)
    app.write_text(f"import marimo\napp = marimo.App()\n\n{body}", encoding="utf-8")
    port = _port()
    settings = ["--headless", "--no-token", "--host=127.0.0.1", f"--port={port}"]
    command = [sys.executable, "-m", "marimo", mode, *settings, str(app)]
    url = f"http://127.0.0.1:{port}"
    with _served(command, root, home, url):
        yield Lab(url, "", root, "", home / LOG)


def _wait_for_server(server: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + PATIENCE / 1000
    while not _answers(url):
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(0.1)
        if server.poll() is not None or time.monotonic() > deadline:
            raise AssertionError(f"JupyterLab did not start:\n{log.read_text(errors='replace')}")


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - our own server
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """A failure keeps a picture of the page, in pytest's temporary folder."""
    report = yield
    if report.failed:
        item.stash[FAILED] = True
    given = getattr(item, "funcargs", {})
    shown = given.get("lab_page") or given.get("fresh_lab_page")
    if report.when == "call" and report.failed and isinstance(shown, LabPage):
        folder = item.config._tmp_path_factory.mktemp("shots")
        try:
            shown.page.screenshot(path=folder / "failure.png", timeout=10_000)
            report.sections.append(("Screenshot", str(folder / "failure.png")))
        except Exception as error:  # noqa: BLE001 - the page may be what broke
            report.sections.append(("Screenshot", f"none: {error}"))
        report.sections.append(("Console errors", "\n".join(shown.console_errors) or "none"))
        log = shown.lab.log.read_text(errors="replace").splitlines()
        told = [line for line in log if re.search("IPKernelApp|ERROR", line) and "encryption" not in line]
        report.sections.append(("Jupyter's log", "\n".join(told[-MOST_LINES:]) or "nothing wrong"))
    return report


@pytest.fixture
def failed(request: pytest.FixtureRequest) -> Callable[[], bool]:
    """Whether the test has failed, for what is shared with the next one."""
    return lambda: request.node.stash.get(FAILED, False)


@pytest.fixture(scope="session")
def profile(chromium: Browser) -> Iterator[BrowserContext]:
    """What pages have in common, 1440 by 900: a cache of the scripts that each of them loads."""
    context = chromium.new_context(viewport=VIEWPORT)
    yield context
    context.close()


def _page(lab: Lab, profile: BrowserContext) -> Iterator[LabPage]:
    """A page of its own."""
    page = LabPage(lab, profile.new_page())
    yield page
    page.page.close()


@pytest.fixture(scope="session")
def pages() -> Iterator[list[LabPage]]:
    """The page that tests share one after the other, if there is one now."""
    found: list[LabPage] = []
    yield found
    for page in found:
        # A server that ends with kernels waits for them.
        page.end_kernels()
        page.page.close()


@pytest.fixture
def lab_page(
    request: pytest.FixtureRequest,
    lab: Lab,
    profile: BrowserContext,
    pages: list[LabPage],
    failed: Callable[[], bool],
) -> Iterator[LabPage]:
    """A page of JupyterLab: as new, though the page may have shown other notebooks before.

    After a failure, and after some notebooks, the next test has another page. Its user asks for little motion, as each
    frame is work for the processor; on the other fixtures' pages everything moves. RTLAB_SHOTS names a folder for a
    picture of the page at the end of each test.
    """
    if not pages:
        pages.append(LabPage(lab, profile.new_page()))
        pages[0].page.emulate_media(reduced_motion="reduce")
    page = pages[0]
    yield page
    if folder := os.environ.get("RTLAB_SHOTS"):
        page.page.screenshot(path=Path(folder) / f"{request.node.name}.png")
    page.shown += 1
    if failed() or page.shown >= NOTEBOOKS or not page.clear():
        pages.clear()
        page.page.close()


@pytest.fixture
def fresh_lab_page(lab: Lab, profile: BrowserContext) -> Iterator[LabPage]:
    """A page of JupyterLab that nothing was shown in, for what happens when a page is loaded."""
    yield from _page(lab, profile)


@pytest.fixture
def notebook_page(notebook: Lab, profile: BrowserContext) -> Iterator[LabPage]:
    """A page of Notebook 7."""
    yield from _page(notebook, profile)


@pytest.fixture
def voila_page(voila: Lab, profile: BrowserContext) -> Iterator[LabPage]:
    """A page of Voila."""
    yield from _page(voila, profile)


@pytest.fixture
def open_cells(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, profile: BrowserContext
) -> Iterator[Callable[[str, Sequence[str]], LabPage]]:
    """Shows cells, all of them run, in a host by its name."""
    with contextlib.ExitStack() as stack:

        def visited(lab: Lab, address: str) -> LabPage:
            host = LabPage(lab, profile.new_page())
            stack.callback(host.page.close)
            host.page.goto(address)
            return host

        def open_(name: str, cells: Sequence[str]) -> LabPage:
            program, _, mode = name.partition(" ")
            if program == "marimo":
                lab = stack.enter_context(_marimo(tmp_path_factory, cells, mode))
                return visited(lab, lab.url)
            if program == "voila":
                options = [f"--preheat_kernel={mode == 'preheated'}", "--pool_size=1"]
                lab = stack.enter_context(_voila(tmp_path_factory, cells, *options))
                host = visited(lab, f"{lab.url}/{lab.tree}/first.ipynb")
                assert ("Using pre-heated kernel" in lab.log.read_text(errors="replace")) == (
                    mode == "preheated"
                )
                return host
            if program == "nbconvert":
                root = tmp_path_factory.mktemp("root")
                path = write_notebook(root / "executed.ipynb", cells)
                command = [sys.executable, "-m", "nbconvert", "--to", "html", "--execute", str(path)]
                subprocess.run(command, check=True, capture_output=True, env=_variables(root))
                return visited(Lab("", "", root, "", root), path.with_suffix(".html").as_uri())
            host = request.getfixturevalue("notebook_page")
            host.open(list(cells))
            host.run_all()
            return host

        yield open_


@pytest.fixture
def opened(lab_page: LabPage) -> Callable[[str], Explorer]:
    """Runs a notebook of one cell, and returns the Explorer that it shows once that is ready."""

    def open_(cell: str) -> Explorer:
        lab_page.open([cell])
        lab_page.run_all()
        shown = Explorer(lab_page)
        shown.ready()
        return shown

    return open_
