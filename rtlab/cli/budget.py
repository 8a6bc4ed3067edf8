"""``--budget``: the seconds that a whole command may take, from its start."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import sys
import threading
import time
from collections.abc import Iterator

from rtlab.core.progress import Deadline
from rtlab.errors import Cancelled, RtlabError

#: When the command was begun, which imports much of rtlab after this module.
_started = time.monotonic()
#: Seconds after its time at which a command is ended that does not hear of it.
_ENDED = 4.2


class Seconds(float):
    """A budget that stands on the command line; a default is a plain number."""


@contextlib.contextmanager
def limited(given: argparse.Namespace) -> Iterator[None]:
    """Run a command within its budget, where one stands on the command line; ``given.deadline`` is what is reported to.

    Raises:
        RtlabError: the time was over before there was anything to show.
    """
    seconds = getattr(given, "budget", None)
    given.deadline = None
    if not isinstance(seconds, Seconds) or not 0 < seconds < math.inf:
        yield
        return
    given.deadline = Deadline(seconds - (time.monotonic() - _started) if given.program else seconds)
    # What is computed in this process, such as the layout of a table, hears nothing.
    end = threading.Timer(given.deadline.left + _ENDED, _end, (given,))
    end.daemon = True
    if given.program:
        # Not where a notebook or a test calls the command.
        end.start()
    try:
        yield
    except Cancelled as error:
        if not given.deadline.late:
            raise
        raise RtlabError(_over(given)) from error
    finally:
        end.cancel()
        given.deadline.close()


def shared(given: argparse.Namespace, parts: int) -> float:
    """Seconds for each of so many parts of a command that measure."""
    return float(given.budget) / parts if given.deadline is not None else float(given.budget)


def _over(given: argparse.Namespace) -> str:
    return (
        f'Cannot finish "rtlab {given.command}" in {float(given.budget):g} s: the time of --budget was over before '
        "there was anything to show. Give more, or leave --budget out, which limits measuring alone."
    )


def _end(given: argparse.Namespace) -> None:
    import psutil

    if getattr(given, "json", False) and sys.__stdout__ is not None:
        print(
            json.dumps({"error": {"kind": "RtlabError", "message": _over(given)}}),
            file=sys.__stdout__,
            flush=True,
        )
    if sys.__stderr__ is not None:
        print(f"rtlab: {_over(given)}", file=sys.__stderr__, flush=True)
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            child.kill()
    os._exit(1)
