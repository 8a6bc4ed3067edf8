"""Every exception that rtlab raises on purpose.

``RtlabError`` has the subclasses ``ModelError`` (with ``Unsized``), ``VariantError``, ``BackendError`` (with
``Unavailable``, ``BuildError`` and ``RunError``), ``ReadError``, ``CalibrationError`` and ``Cancelled``. A message
has three parts: what was attempted, what was found, what to do next.
"""

from __future__ import annotations

import contextlib
import errno
import re
import sys
from types import FunctionType
from typing import TYPE_CHECKING, TypeVar

if sys.platform != "win32":
    # Not where it is asked: it cannot be loaded any more where memory is refused.
    import resource

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

T = TypeVar("T")
#: Characters of a name, or of anything else without a space, that a message quotes; a file can hold names of megabytes.
_QUOTED = 200
#: A quotation begins behind a space or a bracket.
_LONG = re.compile(rf'(?<![^\s(\[=:,]")(?<=")[^"\n]{{{_QUOTED + 1},}}(?=")|[^\s"]{{{_QUOTED + 1},}}')

#: What libraries report where memory is refused.
_REFUSED = re.compile(
    r"bad_alloc|bad allocation|can't start new thread|pthread_create failed|cannot allocate memory"
    r"|failed to (map segment|allocate memory)",
    re.IGNORECASE,
)


class RtlabError(Exception):
    """Base of all errors. ``details`` holds the vendor's message, and the full message where names in it were cut."""

    def __init__(self, message: str, *, details: str = "") -> None:
        short = _LONG.sub(_shorten, message)
        super().__init__(short)
        self.details = details if short == message else "\n".join(filter(None, (details, message)))

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle with ``details``."""
        return (_restore, (type(self), str(self), self.details))


def _shorten(match: re.Match[str]) -> str:
    """Both ends of a name."""
    half = _QUOTED // 2 - 1
    return f"{match[0][:half]}…{match[0][-half:]}"


def _restore(kind: type[RtlabError], message: str, details: str) -> RtlabError:
    return kind(message, details=details)


class ModelError(RtlabError):
    """The file or graph is unusable."""


class Unsized(ModelError):  # noqa: N818 - reads as the state it names
    """A dimension of an input is dynamic, and nobody named its size."""


class VariantError(RtlabError):
    """The requested combination of precision, calibrator, target and backend cannot exist."""


class BackendError(RtlabError):
    """A backend could not do its work."""


class Unavailable(BackendError):  # noqa: N818 - reads as the state it names
    """A package, driver or device is missing."""


class BuildError(BackendError):
    """The compiler refused the model or crashed.

    ``nodes`` are the ids of those that it refuses, as far as it says; ``until`` the values at which the model can be
    cut before them, as far as that is known; ``rewrites`` those with which it did build the model.
    """

    def __init__(
        self,
        message: str,
        *,
        details: str = "",
        nodes: Iterable[str] = (),
        until: Iterable[str] = (),
        rewrites: Iterable[str] = (),
    ) -> None:
        super().__init__(message, details=details)
        self.nodes, self.until, self.rewrites = tuple(nodes), tuple(until), tuple(rewrites)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle with all attributes."""
        return (*super().__reduce__(), {"nodes": self.nodes, "until": self.until, "rewrites": self.rewrites})


class RunError(BackendError):
    """An inference failed."""


class ReadError(RtlabError):
    """An imported file is malformed."""


class CalibrationError(RtlabError):
    """The data cannot calibrate the model."""


class Cancelled(RtlabError):  # noqa: N818 - not a fault
    """The user stopped the work. ``notes`` are those of the model that was prepared by then."""

    notes: tuple[str, ...] = ()


def wrap_error(error: Exception, action: str, kind: type[RtlabError] = RtlabError) -> RtlabError:
    """An unexpected exception as an error of this kind, with its traceback as details.

    Args:
        error: An ``RtlabError`` comes back as it is, unless it reports that memory is refused.
        action: What was attempted, continuing "Cannot": ``load the model``.
        kind: Class of the new error.
    """
    if isinstance(error, RtlabError) and not is_out_of_memory(error):
        return error
    cause, remedy = _describe_cause(error)
    return kind(f"Cannot {action}: {cause}. {remedy}", details=format_traceback(error))


def format_traceback(error: BaseException) -> str:
    """The traceback of an error with paths relative to ``sys.path``, so that it can be passed on."""
    import traceback
    from pathlib import Path

    search_paths = sorted({str(Path(p).resolve()) for p in sys.path}, key=len, reverse=True)

    def shorten(match: re.Match[str]) -> str:
        path = Path(match[1])
        home = next((p for p in search_paths if path.is_relative_to(p)), str(path.parent))
        return f'"{path.relative_to(home).as_posix()}"'

    return re.sub(r'(?<=  File )"(.+?)"', shorten, "".join(traceback.format_exception(error)))


@contextlib.contextmanager
def boundary(action: str, kind: type[RtlabError] = RtlabError) -> Iterator[None]:
    """Convert unexpected exceptions at a public entry point into ``RtlabError``; arguments as for ``wrap_error``.

    Arguments that the signature does not take (TypeError), AssertionError, BrokenPipeError and the CancelledError of a
    future pass unchanged.
    """
    try:
        yield
    except (AssertionError, BrokenPipeError):
        raise
    except RtlabError as error:
        if not is_out_of_memory(error):
            raise
        raise wrap_error(error, action, type(error)) from error
    except Exception as error:
        from concurrent.futures import CancelledError

        if isinstance(error, CancelledError) or (isinstance(error, TypeError) and _is_signature_error(error)):
            raise
        raise wrap_error(error, action, kind) from error


def _is_signature_error(error: TypeError) -> bool:
    """Whether a call did not fit the signature of what ``boundary`` decorates."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_code.co_filename == contextlib.__file__


def guard_methods(owner: type[T]) -> type[T]:
    """A class decorator that makes each public method a ``boundary`` of its name if it is none yet."""
    for name in dir(owner):
        member = getattr(owner, name)
        if (
            not name.startswith("_")
            and isinstance(member, FunctionType)
            and not hasattr(member, "__wrapped__")
        ):
            setattr(owner, name, boundary(f'do "{name}"')(member))
    return owner


def describe_memory_limit() -> str:
    """The limit of this process's address space in words; empty where there is none."""
    if sys.platform == "win32":
        return ""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return ""
    return f"a process may have no more than {limit / 2**30:.2f} GiB of address space here (ulimit -v)"


if describe_memory_limit():
    import ctypes

    # A thread that ends needs it to unwind its stack; where it cannot be loaded by then the process aborts.
    with contextlib.suppress(OSError):
        ctypes.CDLL("libgcc_s.so.1")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error comes from the limit of the process's address space."""
    if not describe_memory_limit():
        return False
    # A library that finds no room raises ImportError.
    library_missing = isinstance(error, ImportError) and not isinstance(error, ModuleNotFoundError)
    return library_missing or bool(_REFUSED.search(f"{error}"))


#: What to do where memory is confined.
UNCONFINE = (
    "Raise it in the shell that starts this (ulimit -v unlimited), or take a smaller model, batch or sample."
)
#: Bytes of address space below which vendors' libraries do not load, and may abort the process.
_LEAST = 1 << 29


def check_memory_limit(action: str) -> None:
    """Raise ``RtlabError`` where the address space has no room for vendors' code; ``action`` continues "Cannot"."""
    if describe_memory_limit() and resource.getrlimit(resource.RLIMIT_AS)[0] < _LEAST:
        raise RtlabError(
            f"Cannot {action}: there is not enough memory: {describe_memory_limit()}. {UNCONFINE}"
        )


def _describe_cause(error: Exception) -> tuple[str, str]:
    """The cause, and what to do next."""
    from concurrent.futures import BrokenExecutor

    if (isinstance(error, MemoryError) and describe_memory_limit()) or is_out_of_memory(error):
        return f"there is not enough memory: {describe_memory_limit()}", UNCONFINE
    if isinstance(error, MemoryError):
        return "there is not enough memory", "Close other programs, or take a smaller model, batch or sample."
    if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return "the disk is full", "Free some space, or name a folder with more of it in TMPDIR."
    if isinstance(error, OSError) and error.errno == errno.EFBIG:
        cause = "a file would grow beyond what this process may write (ulimit -f)"
        return cause, "Raise it in the shell that starts this: ulimit -f unlimited."
    if isinstance(error, RecursionError):
        return "it is nested too deeply for Python", "Export the model with fewer bodies inside each other."
    if isinstance(error, ImportError) and error.name:
        cause = f'the package of "{error.name}" is not installed, or damaged'
        return cause, "Install rtlab again, with all it needs."
    # A cluster's scheduler gives up a task of which worker after worker died; its package need not be there.
    if isinstance(error, BrokenExecutor) or type(error).__name__ == "KilledWorker":
        cause = (
            "a worker of the executor ended in the middle of its work, as when the system needs its memory"
        )
        return cause, "Make a new executor with fewer workers, or leave it out."
    if isinstance(error, OSError) and error.strerror:
        where = f' "{error.filename}"' if error.filename else ""
        cause = f"the system refused it{where}: {error.strerror}"
        return cause, "Check the path, and whether it is yours to use."
    text = " ".join(str(error).split()).rstrip(".")[:300]
    cause = f"{type(error).__name__}{': ' if text else ''}{text}"
    return cause, "This is unexpected: please report it, with the error's details."
