"""``--budget``: the seconds that a whole command may take, from its start."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import sys
import threading
import time
from collections.abc import Iterator

from rtlab.core.progress import Deadline
from rtlab.errors import Cancelled, RtlabError

#: When the command was begun, which imports much of rtlab after this module.
_start_time = time.monotonic()
#: Seconds after its time at which a command that has not stopped is killed, those in which what is there by then is
#: printed, and those that are left for printing: so
#: many, or a part of its time where that is less.
_ENDED, _SHOWN, _PRINTING, _PRINTING_PART = 2.5, 1.7, 3.0, 0.15


class Seconds(float):
    """A budget that stands on the command line; a default is a plain number."""


@contextlib.contextmanager
def enforce_budget(args: argparse.Namespace) -> Iterator[None]:
    """Run a command within its budget, where one stands on the command line; ``args.deadline`` is what is reported to.

    Raises:
        RtlabError: the time was over before there was an engine to show.
    """
    seconds = getattr(args, "budget", None)
    args.deadline = None
    if not isinstance(seconds, Seconds) or not 0 < seconds < math.inf:
        yield
        return
    remaining = seconds - (time.monotonic() - _start_time) if args.program else seconds
    args.deadline = Deadline(remaining - min(_PRINTING, _PRINTING_PART * seconds))
    # What is computed in this process, such as the layout of a table, cannot be cancelled.
    end = threading.Timer(max(0.0, remaining) + _ENDED, _kill_command, (args,))
    end.daemon = True
    if args.program:
        # Not where a notebook or a test calls the command.
        end.start()
    try:
        yield
    except Cancelled as error:
        if not args.deadline.is_over:
            raise
        raise RtlabError(_timeout_message(args)) from error
    finally:
        end.cancel()
        args.deadline.close()


def share_budget(args: argparse.Namespace, parts: int) -> float:
    """Seconds for each of so many parts of a command that measure."""
    return float(args.budget) / parts if args.deadline is not None else float(args.budget)


def _timeout_message(args: argparse.Namespace) -> str:
    position = args.deadline.position
    activity = f', in "{position}"' if position else ""
    return (
        f'Cannot finish "rtlab {args.command}" in {float(args.budget):g} s: the time of --budget was used up'
        f"{activity}. Give more, or leave --budget out, which limits measuring alone."
    )


def _kill_command(args: argparse.Namespace) -> None:
    import psutil

    last = threading.Timer(_SHOWN, os._exit, (1,))
    last.daemon = True
    last.start()
    show = getattr(args, "show", None)
    if show is not None:
        # The command is still at work; whatever comes of that, the message follows.
        with contextlib.suppress(Exception):
            show()
            sys.stdout.flush()
    if sys.__stderr__ is not None:
        print(f"rtlab: {_timeout_message(args)}", file=sys.__stderr__, flush=True)
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            child.kill()
    os._exit(1)
