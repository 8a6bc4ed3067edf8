"""Netron's page for a model, from a server of our own that gives this model away and nothing else.

Netron's own server hands out every file below the model's folder, to any client under any name of the host. Its
page looks up the visitor's country at one service, reports to another, and refuses to work half a year after its
release. Here the page has a path that cannot be guessed, the date of today and a consent that is given already,
and may connect to nothing but this server.
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
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rtlab.core.model import Model

_LOOPBACK = "127.0.0.1"
#: Seconds after which a visitor who sends or takes nothing is left.
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


def serve(owner: object, model: Model) -> str:
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
