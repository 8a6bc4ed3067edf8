"""Netron's page for a model, from a server of our own that gives this model away and nothing else.

Netron's own server hands out every file below the model's folder, to whoever asks under whatever name of the host. Its
page asks a stranger for the visitor's country and reports to another, and refuses to work half a year after its
release. Here the page stands under a path that nobody can guess, is told that it is of today, has its consent settled,
and may connect to nothing but this server.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
import html
import http
import http.server
import importlib.metadata
import io
import mimetypes
import re
import secrets
import shutil
import socketserver
import threading
import urllib.parse
import weakref
from collections.abc import Callable, Iterator, Mapping
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
#: What of the package belongs to the page.
_PAGE = {".html", ".js", ".css", ".json", ".png", ".ico", ".svg", ".woff", ".woff2", ".ttf"}


@dataclasses.dataclass(frozen=True)
class NetronModel:
    """A model to be shown: what opens its bytes, and those of each file beside it that it names."""

    name: str
    model: Callable[[], IO[bytes]]
    external_files: Mapping[str, Path] = dataclasses.field(default_factory=dict)

    @property
    def file(self) -> str:
        """A name under which Netron takes it for ONNX; what is no part of a file name is replaced."""
        stem = re.sub(r"[^A-Za-z0-9._ -]", "_", self.name.removesuffix(".onnx")).strip(". ")
        return f"{stem[:100] or 'model'}.onnx"

    def open(self, file: str) -> IO[bytes] | None:
        """The bytes of the model or of a file that it names; None where it names no such file, or it is gone."""
        if file == self.file:
            return self.model()
        path = self.external_files.get(file)
        return None if path is None or not path.is_file() else path.open("rb")


def make_netron_model(model: Model) -> NetronModel:
    """A model as its file has it, with the files that hold its weights; where that has changed, as it was loaded."""
    origin = model.origin
    if origin is None:
        if model.beside:
            # Whoever opens it reads why it cannot be had, in place of an empty page.
            model.proto()
        return NetronModel(model.name, lambda: io.BytesIO(model.bytes()))
    return NetronModel(origin.stem, lambda: origin.open("rb"), {f: origin.parent / f for f in model.beside})


def serve(owner: object, netron_model: NetronModel, key: str) -> str:
    """Serve a model for as long as its owner lives; returns the address of the page.

    Args:
        owner: When it is gone, so is the page.
        netron_model: The model. It must not hold its owner.
        key: What the owner calls it: served again, it keeps its address.

    Raises:
        OSError: no port of this machine is free.
    """
    return _Server.get_instance().add(owner, netron_model, key)


class _Server(http.server.ThreadingHTTPServer):
    """All pages of this process; it closes with the last of them."""

    daemon_threads = True
    block_on_close = False
    _instance: _Server | None = None
    _lock = threading.RLock()

    @classmethod
    def get_instance(cls) -> _Server:
        """The server of this process."""
        with cls._lock:
            if cls._instance is None:
                cls._instance = cls((_LOOPBACK, 0), _Handler)
                threading.Thread(target=cls._instance.serve_forever, name="rtlab-netron", daemon=True).start()
            return cls._instance

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.pages: dict[str, NetronModel] = {}
        self._paths: weakref.WeakKeyDictionary[object, dict[str, str]] = weakref.WeakKeyDictionary()

    def server_bind(self) -> None:
        """Bind, without asking the network for this machine's name as the base class does."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = _LOOPBACK, int(self.server_address[1])

    @property
    def hosts(self) -> set[str]:
        """What a browser calls this server that was led here by nobody else."""
        return {f"{name}:{self.server_port}" for name in (_LOOPBACK, "localhost")}

    def add(self, owner: object, netron_model: NetronModel, key: str) -> str:
        """The address of a page."""
        with self._lock:
            mine = self._paths.setdefault(owner, {})
            if key not in mine:
                mine[key] = secrets.token_urlsafe(24)
                weakref.finalize(owner, self._remove, mine[key])
            self.pages[mine[key]] = netron_model
            return f"http://{_LOOPBACK}:{self.server_port}/{mine[key]}/"

    def _remove(self, path: str) -> None:
        with self._lock:
            self.pages.pop(path, None)
            if self.pages or _Server._instance is not self:
                return
            _Server._instance = None
        # Whoever let go of the last owner may be one of our own threads, which the end would wait for.
        threading.Thread(target=self._end, name="rtlab-netron-end", daemon=True).start()

    def _end(self) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, *_: object) -> None:
        """A visitor who goes away in the middle is nothing to be told in a notebook."""


class _Handler(http.server.BaseHTTPRequestHandler):
    """Answers for the page, its parts, the model and the files that it names."""

    server: _Server
    server_version, sys_version = "rtlab", ""
    timeout = _PATIENCE

    def do_GET(self) -> None:
        """Send what is asked for."""
        self._answer(body=True)

    def do_HEAD(self) -> None:
        """Tell of it."""
        self._answer(body=False)

    def _answer(self, *, body: bool) -> None:
        if not self._is_same_origin():
            self._refuse(http.HTTPStatus.FORBIDDEN)
            return
        _, _, url_path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path).partition("/")
        token, slash, rest = url_path.partition("/")
        netron_model = self.server.pages.get(token)
        if netron_model is None or not slash:
            self._refuse(http.HTTPStatus.NOT_FOUND)
            return
        try:
            with contextlib.ExitStack() as stack:
                content_and_type = self._open_content(netron_model, rest)
                if content_and_type is None:
                    self._refuse(http.HTTPStatus.NOT_FOUND)
                    return
                content, kind = stack.enter_context(content_and_type[0]), content_and_type[1]
                size = content.seek(0, io.SEEK_END)
                content.seek(0)
                self.send_response(http.HTTPStatus.OK)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(size))
                if not rest:
                    # Otherwise the page asks a stranger in which country its visitor is.
                    self.send_header("Set-Cookie", f"consent=1; Path=/{token}/; SameSite=Strict")
                self.end_headers()
                if body:
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

    def _open_content(self, netron_model: NetronModel, rest: str) -> tuple[IO[bytes], str] | None:
        if not rest:
            return io.BytesIO(_page(netron_model)), "text/html; charset=utf-8"
        if rest.startswith("data/"):
            content = netron_model.open(rest.removeprefix("data/"))
            return None if content is None else (content, "application/octet-stream")
        part = _parts().get(rest)
        if part is None:
            return None
        kind = "text/javascript" if part.suffix == ".js" else mimetypes.guess_type(part.name)[0]
        return part.open("rb"), kind or "application/octet-stream"

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


@functools.cache
def _folder() -> Path:
    """Where the package lies; it is not imported, since its server is not used."""
    import importlib.util

    spec = importlib.util.find_spec("netron")
    assert spec is not None  # noqa: S101 - it is required
    assert spec.origin is not None  # noqa: S101 - it is a package with a file
    return Path(spec.origin).parent


@functools.cache
def _parts() -> Mapping[str, Path]:
    """The parts of the page by name; no name from outside is ever made a path."""
    return {p.name: p for p in _folder().iterdir() if p.suffix in _PAGE and p.is_file()}


def _page(netron_model: NetronModel) -> bytes:
    """Netron's page, told what to open."""
    page = (_folder() / "index.html").read_text(encoding="utf-8")
    meta_fields = {
        "type": "Python",
        "version": importlib.metadata.version("netron"),
        "date": f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M:%S}",
        "file": f"/data/{urllib.parse.quote(netron_model.file)}",
        "name": netron_model.name,
        "identifier": netron_model.file,
    }
    page = re.sub(r'<meta name="(version|date|type|file|name|identifier)" content="[^"]*">\s*', "", page)
    meta = "\n".join(_meta(meta_fields))
    return page.replace("<title>", f"{meta}\n<title>", 1).encode()


def _meta(meta_fields: Mapping[str, str]) -> Iterator[str]:
    return (f'<meta name="{name}" content="{html.escape(value)}">' for name, value in meta_fields.items())
