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

import re

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
