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

    from rtlab.api import Study
    from rtlab.core.data import CalibrationData
    from rtlab.core.model import Model
    from rtlab.core.task import Task
    from rtlab.web.page.steps import Step

#: What a message says in Python of sizes that lack: the shapes by input, and one of them.
_SHAPE = r'"([^"\n]+)": \((\d+(?:, \d+)*),?\)'
_SIZES = re.compile(rf"rtlab\.load\(\.\.\., shapes=\{{({_SHAPE}(?:, {_SHAPE})*)\}}\)")


def build_study(args: argparse.Namespace, precisions: Sequence[str]) -> Study:
    """The model's study with a variant in each of these precisions, built."""
    return run(plan_study(args, precisions), args)


def run(study: Study, args: argparse.Namespace) -> Study:
    """Build and measure what is planned; where the time of ``--budget`` is over, what is built by then is the answer.

    Raises:
        RtlabError: nothing is.
    """
    seconds = budget.share_budget(args, len(study.state.variants))
    try:
        study.run(compare=not args.no_run, budget_s=seconds, progress=args.deadline)
    except Cancelled:
        if args.deadline is None or not args.deadline.is_over or not study.state.results:
            raise
        if missing := [name for name in study.state.variants if name not in study.state.results]:
            print(f"rtlab: not built in {float(args.budget):g} s: {', '.join(missing)}", file=sys.stderr)
    return study


def plan_study(args: argparse.Namespace, precisions: Sequence[str]) -> Study:
    """The same, with variants that are not built yet."""
    study = open_study(args)
    for precision in precisions:
        study.add(precision, **choice(args, precision), backend=args.backend, compiler=args.compiler)
    return study


def choice(args: argparse.Namespace, precision: str) -> dict[str, Any]:
    """What the arguments choose of a variant in a precision, but for who builds it.

    Raises:
        VariantError: a pin or a calibrator is not written as PATTERN=CHOICE.
    """
    return {
        "precision": {"*": precision, **pins(args.pin)},
        "calibrator": args.calibrator,
        "target": args.target,
        "weights": args.weights,
        "sparsity": args.sparsity,
        "scales": args.scales,
        "calibrators": calibrators(args.calibrate),
        "treatments": args.treat,
    }


def open_study(args: argparse.Namespace) -> Study:
    """A study of the model that is named, with its data.

    Raises:
        RtlabError: one of them cannot be used.
    """
    from rtlab import samples
    from rtlab.api import Study
    from rtlab.core.model import load

    if args.preprocessing is not None and args.data is None:
        raise CalibrationError(
            "Cannot use --preprocessing: it is for a folder of images, and --data names none. Give --data FOLDER."
        )
    if not Path(args.model).exists() and args.model in samples.names():
        if args.shape:
            raise ModelError("Cannot apply --shape to a sample: its shapes are set. Give the path of a file.")
        sample = samples.load(args.model)
        data = _data(args, sample.model) if args.data else sample.calibration
        return Study(sample.model, data=data, task=_task(args, data, sample.task))
    model = load(args.model, shapes=_shapes(args.shape))
    user_data = _data(args, model) if args.data else None
    return Study(model, data=user_data, task=_task(args, user_data, None))


def _task(args: argparse.Namespace, data: CalibrationData | None, sample_task: Task | None) -> Task | None:
    """What the arguments score variants by; a sample has a task of its own.

    Raises:
        CalibrationError: labels have no samples, or a metric none.
    """
    from rtlab.core.task import Task

    # Other commands take no metric, and labels for something else.
    if not hasattr(args, "metric") or (args.labels is None and args.metric is None):
        return sample_task
    if args.labels is None:
        if data is not None and args.data is not None:
            # The answers of fp32 are the labels.
            return Task(data, metric=args.metric)
        if sample_task is None:
            raise CalibrationError(
                f"Cannot score by --metric {args.metric}: there are no samples. Give --data D.npz, and --labels L.npy "
                "where there are some."
            )
        return Task(sample_task.data, sample_task.labels, metric=args.metric)
    if data is None or args.data is None:
        raise CalibrationError(
            f"Cannot score by --labels {args.labels}: nothing says of which samples. Give --data D.npz beside it."
        )
    label_array = labels(args.labels)
    if label_array.ndim and data.count is not None and len(label_array) != data.count:
        raise CalibrationError(
            f"Cannot score by --labels {args.labels}: there are {len(label_array)} labels for {data.count} samples. "
            "Give one for each."
        )
    return Task(data, label_array, metric=args.metric)


def plan_first_engine(args: argparse.Namespace) -> tuple[Study, str]:
    """The study of a model with one variant, not built yet, and what it is called."""
    if args.model is None:
        raise VariantError(
            f'Cannot build "{args.first}" with every compiler: there is no model to build. Give --model.'
        )
    study = _open_comparison_study(args)
    release = (args.compiler or [None])[0]
    study.add(args.first, precision=args.first, target=args.target, compiler=release)
    return study, args.first


def _open_comparison_study(args: argparse.Namespace) -> Study:
    from rtlab import samples
    from rtlab.api import Study
    from rtlab.core.model import load, make_empty_model

    if args.model is None:
        return Study(make_empty_model())
    if args.model in samples.names() and not Path(args.model).exists():
        sample = samples.load(args.model)
        return Study(sample.model, data=sample.calibration, task=sample.task)
    return Study(load(args.model, weights=False))


def open_both_engines(args: argparse.Namespace) -> tuple[Study, list[str]]:
    """The study of two engines, and what they are called."""
    study = _open_comparison_study(args)
    names = []
    # One release builds both, two build one each.
    releases = [*(args.compiler or [None])] * 2
    for place, what, release in (
        ("first", args.first, releases[0]),
        ("second", args.second, releases[1]),
    ):
        path = Path(what)
        is_path = bool(what) and path.exists()
        title = path.name if is_path else f"{what} {release}" if release else what
        name = title if title not in names else f"{title} ({place})"
        names.append(name)
        if is_path:
            files = sorted(f for f in path.iterdir() if f.is_file()) if path.is_dir() else [path]
            study.read(name, *(f for f in files if f.suffix != ".onnx"))
        elif args.model is None:
            raise VariantError(
                f'Cannot compare "{what}": there is no file or folder of this name, and no model to build. '
                "Give the files of an engine, or --model with a precision."
            )
        else:
            study.add(name, precision=what, target=args.target, compiler=release)
            study.run([name])
    return study, names


def _data(args: argparse.Namespace, model: Model) -> CalibrationData:
    from rtlab.core.data import CalibrationData
    from rtlab.core.images import Preprocessing

    settings = None
    if args.preprocessing is not None:
        try:
            settings = Preprocessing(**json.loads(args.preprocessing))
        except (ValueError, TypeError) as error:
            raise CalibrationError(
                f"Cannot read --preprocessing {args.preprocessing}: {error}. "
                'Give JSON with the arguments of rtlab.Preprocessing, such as {"size": [224, 224]}.'
            ) from error
    return CalibrationData.of(args.data, model=model, preprocessing=settings)


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
    from rtlab.web.page.steps import parse_steps

    try:
        step_list = json.loads(read_input(path))
    except (OSError, ValueError) as error:
        raise ReadError(
            f'Cannot read a presentation from "{path}": {error}. Write one with json.dump(explorer.steps, file).'
        ) from error
    if not isinstance(step_list, list):
        raise ReadError(
            f'Cannot read a presentation from "{path}": it holds no list. Write one with '
            "json.dump(explorer.steps, file)."
        )
    return parse_steps(step_list)


def rewrite_for_cli(message: str) -> str:
    """A message with the command line's own words for sizes in the place of Python's."""

    def options(match: re.Match[str]) -> str:
        shapes = re.findall(_SHAPE, match[1])
        return " ".join(
            "--shape " + shlex.quote(f"{name}={sizes.replace(', ', 'x')}") for name, sizes in shapes
        )

    return _SIZES.sub(options, message)


def _shapes(entries: Sequence[str]) -> dict[str, tuple[int, ...] | int]:
    shapes: dict[str, tuple[int, ...] | int] = {}
    for item in entries:
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


def pins(entries: Sequence[str]) -> dict[str, str]:
    """Patterns of nodes with their precisions.

    Raises:
        VariantError: one is not written as PATTERN=PRECISION.
    """
    precisions_by_pattern: dict[str, str] = {}
    for item in entries:
        pattern, _, precision = item.rpartition("=")
        if not pattern or not precision:
            raise VariantError(
                f'Cannot read --pin "{item}": it is not PATTERN=PRECISION. Write for example --pin "/head/*=fp16".'
            )
        precisions_by_pattern[pattern] = precision
    return precisions_by_pattern


def calibrators(entries: Sequence[str]) -> dict[str, str]:
    """Patterns of values with their calibrators.

    Raises:
        VariantError: one is not written as PATTERN=CALIBRATOR.
    """
    calibrators_by_pattern: dict[str, str] = {}
    for item in entries:
        # A calibrator may have an equals sign in its brackets.
        match = re.fullmatch(r"(.+?)=(\w+(?:\(.*\))?)", item)
        if match is None:
            raise VariantError(
                f'Cannot read --calibrate "{item}": it is not PATTERN=CALIBRATOR. Write for example '
                '--calibrate "/head/*=percentile(99.9)".'
            )
        calibrators_by_pattern[match[1]] = match[2]
    return calibrators_by_pattern
