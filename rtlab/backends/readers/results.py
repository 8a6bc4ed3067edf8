"""Results that Polygraphy saved: tensors of one or more runners on the same inputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rtlab.backends.readers import contents
from rtlab.backends.readers.contents import fault, format_value
from rtlab.core.trace import Outputs

if TYPE_CHECKING:
    from numpy.typing import NDArray


def read(path: Path) -> tuple[str, Outputs, Outputs | None, tuple[str, ...]]:
    """A runner with its tensors, TensorRT's or else the first; those of another runner as the reference; notes.

    Raises:
        ReadError: Polygraphy cannot read the file, or a runner has no outputs.
    """
    from polygraphy.comparator import RunResults
    from polygraphy.logger import G_LOGGER

    document = contents.load(path, "results")
    try:
        # What it would log of an error is in the error.
        with G_LOGGER.verbosity(G_LOGGER.CRITICAL + 1):
            results = RunResults.from_json(json.dumps(document.value))
            runners = [(str(name), list(iterations)) for name, iterations in results.items()]
    except Exception as error:
        reason = str(error).strip().split("\n")[0][:200] or type(error).__name__
        raise fault(
            "results", path.name, f'key "lst": Polygraphy refuses what is in it ({reason})', "its RunResults"
        ) from error
    if not runners:
        raise fault("results", path.name, 'key "lst": there is no runner', "a runner and its outputs")
    # A TensorRT runner is what the engine gave; the others say what it should have given.
    runners.sort(key=lambda r: not r[0].startswith("trt"))
    tensors = [_read_iteration(name, iterations, path.name) for name, iterations in runners[:2]]
    notes = list(document.notes)
    if len(runners) > 1:
        notes.append(
            f'Outputs are those of runner "{runners[0][0]}", the reference those of "{runners[1][0]}".'
        )
    if len(runners) > 2:
        other_runners = ", ".join(f'"{name}"' for name, _ in runners[2:5])
        notes.append(f"Runners that are not shown: {other_runners}.")
    if any(len(iterations) > 1 for _, iterations in runners):
        notes.append("The results hold several iterations; the first is shown.")
    return runners[0][0], tensors[0], tensors[1] if len(tensors) > 1 else None, tuple(notes)


def _read_iteration(name: str, iterations: list[Any], file: str) -> Outputs:
    where = f'key "lst", runner "{name}"'
    if not iterations:
        raise fault("results", file, f"{where}: it has no iteration", "its outputs")
    tensors: dict[str, NDArray[np.generic]] = {}
    try:
        items = list(iterations[0].items())
        for key, value in items:
            tensors[str(key)] = np.asarray(value)
    except Exception as error:
        raise fault("results", file, f"{where}: no tensors ({error})", "its outputs") from error
    bad_name = next((k for k, v in tensors.items() if v.dtype.kind not in "fiub"), None)
    if not tensors or bad_name is not None:
        content = "no tensor"
        if bad_name is not None:
            content = f'tensor "{bad_name}" of type {format_value(str(tensors[bad_name].dtype))}'
        raise fault("results", file, f"{where}: it has {content}", "tensors of numbers")
    return tensors
