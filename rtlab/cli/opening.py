"""What a command works on: models, data and engines as its arguments name them."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rtlab.cli import budget
from rtlab.core.inputs import open_arrays, read_input
from rtlab.errors import CalibrationError, Cancelled, ModelError, ReadError, VariantError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.core.data import CalibrationData
    from rtlab.core.model import Model
    from rtlab.core.task import Task
    from rtlab.study import Study
    from rtlab.view.steps import Step

#: What a message says in Python of sizes that lack: the shapes by input, and one of them.
_SHAPE = r'"([^"\n]+)": \((\d+(?:, \d+)*),?\)'
_SIZES = re.compile(rf"rtlab\.load\(\.\.\., shapes=\{{({_SHAPE}(?:, {_SHAPE})*)\}}\)")


def built(given: argparse.Namespace, precisions: Sequence[str]) -> Study:
    """The model's study with a variant in each of these precisions, built."""
    return run(planned(given, precisions), given)


def run(study: Study, given: argparse.Namespace) -> Study:
    """Build and measure what is planned; where the time of ``--budget`` is over, what is built by then is the answer.

    Raises:
        RtlabError: nothing is.
    """
    seconds = budget.shared(given, len(study.variants))
    try:
        study.run(compare=not given.no_run, budget_s=seconds, progress=given.deadline)
    except Cancelled:
        if given.deadline is None or not given.deadline.late or not study.facts:
            raise
        if missing := [name for name in study.variants if name not in study.facts]:
            print(f"rtlab: not built in {float(given.budget):g} s: {', '.join(missing)}", file=sys.stderr)
    return study


def planned(given: argparse.Namespace, precisions: Sequence[str]) -> Study:
    """The same, with variants that are not built yet."""
    study = opened(given)
    for precision in precisions:
        study.add(
            precision,
            precision={"*": precision, **pins(given.pin)},
            calibrator=given.calibrator,
            target=given.target,
            backend=given.backend,
            weights=given.weights,
            sparsity=given.sparsity,
            scales=given.scales,
            calibrators=calibrators(given.calibrate),
            treatments=given.treat,
            compiler=given.compiler,
        )
    return study


def opened(given: argparse.Namespace) -> Study:
    """A study of the model that is named, with its data.

    Raises:
        RtlabError: one of them cannot be used.
    """
    from rtlab import samples
    from rtlab.core.model import load
    from rtlab.study import Study

    if given.preprocessing is not None and given.data is None:
        raise CalibrationError(
            "Cannot use --preprocessing: it is for a folder of images, and --data names none. Give --data FOLDER."
        )
    if not Path(given.model).exists() and given.model in samples.names():
        if given.shape:
            raise ModelError("Cannot apply --shape to a sample: its shapes are set. Give the path of a file.")
        sample = samples.load(given.model)
        data = _data(given, sample.model) if given.data else sample.calibration
        return Study(sample.model, data=data, task=_task(given, data, sample.task))
    model = load(given.model, shapes=_shapes(given.shape))
    own = _data(given, model) if given.data else None
    return Study(model, data=own, task=_task(given, own, None))


def _task(given: argparse.Namespace, data: CalibrationData | None, own: Task | None) -> Task | None:
    """What the arguments score variants by; a sample has a task of its own.

    Raises:
        CalibrationError: labels have no samples, or a metric none.
    """
    from rtlab.core.task import Task

    # Other commands take no metric, and labels for something else.
    if not hasattr(given, "metric") or (given.labels is None and given.metric is None):
        return own
    if given.labels is None:
        if data is not None and given.data is not None:
            # The answers of fp32 are the labels.
            return Task(data, metric=given.metric)
        if own is None:
            raise CalibrationError(
                f"Cannot score by --metric {given.metric}: there are no samples. Give --data D.npz, and --labels L.npy "
                "where there are some."
            )
        return Task(own.data, own.labels, metric=given.metric)
    if data is None or given.data is None:
        raise CalibrationError(
            f"Cannot score by --labels {given.labels}: nothing says of which samples. Give --data D.npz beside it."
        )
    known = labels(given.labels)
    if known.ndim and data.count is not None and len(known) != data.count:
        raise CalibrationError(
            f"Cannot score by --labels {given.labels}: there are {len(known)} labels for {data.count} samples. Give "
            "one for each."
        )
    return Task(data, known, metric=given.metric)


def first(given: argparse.Namespace) -> tuple[Study, str]:
    """The study of a model with one variant, not built yet, and what it is called."""
    if given.model is None:
        raise VariantError(
            f'Cannot build "{given.first}" with every compiler: there is no model to build. Give --model.'
        )
    study = _compared(given)
    release = (given.compiler or [None])[0]
    study.add(given.first, precision=given.first, target=given.target, compiler=release)
    return study, given.first


def _compared(given: argparse.Namespace) -> Study:
    from rtlab import samples
    from rtlab.core.model import absent, load
    from rtlab.study import Study

    if given.model is None:
        return Study(absent())
    if given.model in samples.names() and not Path(given.model).exists():
        sample = samples.load(given.model)
        return Study(sample.model, data=sample.calibration, task=sample.task)
    return Study(load(given.model, weights=False))


def both(given: argparse.Namespace) -> tuple[Study, list[str]]:
    """The study of two engines, and what they are called."""
    study = _compared(given)
    names = []
    # One release builds both, two build one each.
    releases = [*(given.compiler or [None])] * 2
    for place, what, release in (
        ("first", given.first, releases[0]),
        ("second", given.second, releases[1]),
    ):
        path = Path(what)
        given_file = bool(what) and path.exists()
        title = path.name if given_file else f"{what} {release}" if release else what
        name = title if title not in names else f"{title} ({place})"
        names.append(name)
        if given_file:
            files = sorted(f for f in path.iterdir() if f.is_file()) if path.is_dir() else [path]
            study.read(name, *(f for f in files if f.suffix != ".onnx"))
        elif given.model is None:
            raise VariantError(
                f'Cannot compare "{what}": there is no file or folder of this name, and no model to build. '
                "Give the files of an engine, or --model with a precision."
            )
        else:
            study.add(name, precision=what, target=given.target, compiler=release)
            study.run([name])
    return study, names


def _data(given: argparse.Namespace, model: Model) -> CalibrationData:
    from rtlab.core.data import CalibrationData
    from rtlab.core.images import Preprocessing

    settings = None
    if given.preprocessing is not None:
        try:
            settings = Preprocessing(**json.loads(given.preprocessing))
        except (ValueError, TypeError) as error:
            raise CalibrationError(
                f"Cannot read --preprocessing {given.preprocessing}: {error}. "
                'Give JSON with the arguments of rtlab.Preprocessing, such as {"size": [224, 224]}.'
            ) from error
    return CalibrationData.of(given.data, model=model, preprocessing=settings)


def labels(path: str) -> NDArray[Any]:
    """The labels of samples, from an .npy.

    Raises:
        CalibrationError: it cannot be read.
    """
    import numpy as np

    try:
        with open_arrays(path) as array:
            return np.asarray(array)
    except (OSError, ValueError) as error:
        raise CalibrationError(
            f'Cannot read labels from "{path}": {error}. Give an .npy with one label for each sample.'
        ) from error


def steps(path: str) -> list[Step]:
    """The steps of a presentation, from JSON.

    Raises:
        ReadError: the file cannot be read.
        RtlabError: one of them is no step.
    """
    from rtlab.view.steps import steps_of

    try:
        found = json.loads(read_input(path))
    except (OSError, ValueError) as error:
        raise ReadError(
            f'Cannot read a presentation from "{path}": {error}. Write one with json.dump(explorer.steps, file).'
        ) from error
    if not isinstance(found, list):
        raise ReadError(
            f'Cannot read a presentation from "{path}": it holds no list. Write one with '
            "json.dump(explorer.steps, file)."
        )
    return steps_of(found)


def spoken(message: str) -> str:
    """A message with the command line's own words for sizes in the place of Python's."""

    def options(match: re.Match[str]) -> str:
        shapes = re.findall(_SHAPE, match[1])
        return " ".join(
            "--shape " + shlex.quote(f"{name}={sizes.replace(', ', 'x')}") for name, sizes in shapes
        )

    return _SIZES.sub(options, message)


def _shapes(given: Sequence[str]) -> dict[str, tuple[int, ...] | int]:
    shapes: dict[str, tuple[int, ...] | int] = {}
    for item in given:
        name, _, text = item.rpartition("=")
        try:
            sizes = tuple(int(d) for d in text.lower().replace("×", "x").split("x"))
        except ValueError:
            sizes = ()
        if not name or not sizes:
            raise ModelError(
                f'Cannot read --shape "{item}": it is not NAME=1x3x224x224. Write sizes joined by x.'
            )
        shapes[name] = sizes
    return shapes


def pins(given: Sequence[str]) -> dict[str, str]:
    """Patterns of nodes with their precisions.

    Raises:
        VariantError: one is not written as PATTERN=PRECISION.
    """
    made: dict[str, str] = {}
    for item in given:
        pattern, _, precision = item.rpartition("=")
        if not pattern or not precision:
            raise VariantError(
                f'Cannot read --pin "{item}": it is not PATTERN=PRECISION. Write for example --pin "/head/*=fp16".'
            )
        made[pattern] = precision
    return made


def calibrators(given: Sequence[str]) -> dict[str, str]:
    """Patterns of values with their calibrators.

    Raises:
        VariantError: one is not written as PATTERN=CALIBRATOR.
    """
    made: dict[str, str] = {}
    for item in given:
        # A calibrator may have an equals sign in its brackets.
        found = re.fullmatch(r"(.+?)=(\w+(?:\(.*\))?)", item)
        if found is None:
            raise VariantError(
                f'Cannot read --calibrate "{item}": it is not PATTERN=CALIBRATOR. Write for example '
                '--calibrate "/head/*=percentile(99.9)".'
            )
        made[found[1]] = found[2]
    return made
