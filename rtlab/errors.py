"""Every exception that rtlab raises on purpose.

::

    RtlabError
      ModelError         the file or graph is unusable
      VariantError       the requested combination cannot exist
      BackendError
        Unavailable      a package, driver or device is missing
        BuildError       the compiler refused or crashed
        RunError         an inference failed
      ReadError          an imported file is malformed
      CalibrationError   the data cannot calibrate the model
      Cancelled          the user stopped the work

A message has three parts: what was attempted, what was found, what to do next.
"""

from __future__ import annotations

import contextlib
import errno
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Characters of a name, or of anything else without a space, that a message quotes; a file can hold names of megabytes.
_QUOTED = 200
#: A quotation begins behind a space or a bracket: what stands between two of them is none.
_LONG = re.compile(rf'(?<![^\s(\[=:,]")(?<=")[^"\n]{{{_QUOTED + 1},}}(?=")|[^\s"]{{{_QUOTED + 1},}}')


class RtlabError(Exception):
    """Base of all errors. ``details`` keeps the vendor's own words, unabridged, and a message whose names were cut."""

    def __init__(self, message: str, *, details: str = "") -> None:
        short = _LONG.sub(_cut, message)
        super().__init__(short)
        self.details = details if short == message else "\n".join(filter(None, (details, message)))

    def __reduce__(self) -> tuple[object, ...]:
        """Survive pickling with ``details``, because results cross processes."""
        return (_restore, (type(self), str(self), self.details))


def _cut(found: re.Match[str]) -> str:
    """Both ends of a name, of which either may tell one from another."""
    half = _QUOTED // 2 - 1
    return f"{found[0][:half]}…{found[0][-half:]}"


def _restore(kind: type[RtlabError], message: str, details: str) -> RtlabError:
    return kind(message, details=details)


class ModelError(RtlabError):
    """The file or graph is unusable."""


class VariantError(RtlabError):
    """The requested combination of precision, calibrator, target and backend cannot exist."""


class BackendError(RtlabError):
    """A backend could not do its work."""


class Unavailable(BackendError):  # noqa: N818 - reads as the state it names
    """A package, driver or device is missing."""


class BuildError(BackendError):
    """The compiler refused the model or crashed."""


class RunError(BackendError):
    """An inference failed."""


class ReadError(RtlabError):
    """An imported file is malformed."""


class CalibrationError(RtlabError):
    """The data cannot calibrate the model."""


class Cancelled(RtlabError):  # noqa: N818 - not a fault
    """The user stopped the work."""


def told(error: Exception, doing: str, kind: type[RtlabError] = RtlabError) -> RtlabError:
    """An error that nobody raised on purpose, in words; Python's own are its details.

    Args:
        error: One of rtlab's comes back as it is.
        doing: What was attempted, continuing "Cannot": ``load the model``.
        kind: Of the error that tells it.
    """
    if isinstance(error, RtlabError):
        return error
    import traceback

    found, next_ = _found(error)
    details = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return kind(f"Cannot {doing}: {found}. {next_}", details=details)


@contextlib.contextmanager
def boundary(doing: str, kind: type[RtlabError] = RtlabError) -> Iterator[None]:
    """A public entry, behind which whatever fails is told in words; arguments as for ``told``.

    Raises:
        RtlabError: what failed inside. Mistakes in a call (TypeError) and in a program that is being tested
            (AssertionError) stay what they are, and so do a reader of the output
            who has seen enough, and a future that somebody cancelled.
    """
    try:
        yield
    except (RtlabError, TypeError, AssertionError, BrokenPipeError):
        raise
    except Exception as error:
        from concurrent.futures import CancelledError

        if isinstance(error, CancelledError):
            raise
        raise told(error, doing, kind) from error


def _found(error: Exception) -> tuple[str, str]:
    """What was found, and what to do next."""
    from concurrent.futures import BrokenExecutor

    if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return "the disk is full", "Free some space, or name a folder with more of it in TMPDIR."
    if isinstance(error, MemoryError):
        return "there is not enough memory", "Close other programs, or take a smaller model, batch or sample."
    if isinstance(error, RecursionError):
        return "it is nested too deeply for Python", "Export the model with fewer bodies inside each other."
    if isinstance(error, ImportError) and error.name:
        return (
            f'the package of "{error.name}" is not installed, or damaged',
            "Install rtlab again, with all it needs.",
        )
    if isinstance(error, BrokenExecutor):
        return (
            "a worker of the executor ended in the middle of its work, as when the system needs its memory",
            "Make a new executor with fewer workers, or leave it out.",
        )
    if isinstance(error, OSError) and error.strerror:
        where = f' "{error.filename}"' if error.filename else ""
        return (
            f"the system refused it{where}: {error.strerror}",
            "Check the path, and whether it is yours to use.",
        )
    text = " ".join(str(error).split()).rstrip(".")[:300]
    return (
        f"{type(error).__name__}{': ' if text else ''}{text}",
        "Nobody foresaw this: please report it, with the error's details.",
    )
