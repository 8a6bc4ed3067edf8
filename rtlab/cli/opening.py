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
from rtlab.core.inputs import open_arrays
from rtlab.errors import CalibrationError, Cancelled, ModelError, RtlabError, VariantError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtlab.api import Study
    from rtlab.core.data import CalibrationData
    from rtlab.core.model import Model
    from rtlab.core.task import Task
    from rtlab.samples import Sample

#: Commands that score variants on any samples.
_SCORING = {"check", "repair"}
#: What a message says in Python of sizes that lack: those of symbols and shapes of inputs, and one of them.
_SHAPE = r'"([^"\n]+)": \(?(\d+(?:, \d+)*),?\)?'
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
    from rtlab.core.partial_shapes import parse_sizes

    study = open_study(args)
    for precision in precisions:
        for entry in getattr(args, "sizes", ()) or ("",):
            study.add(
                f"{precision} {entry}".strip(),
                **choice(args, precision),
                sizes=parse_sizes(
                    _parse_shapes("--sizes", entry.split(",") if entry else ()), study.model.inputs
                ),
                backend=args.backend,
                compiler=args.compiler,
            )
    return study


def choice(args: argparse.Namespace, precision: str) -> dict[str, Any]:
    """What the arguments choose of a variant in a precision, but for who builds it.

    Raises:
        RtlabError: a pin or a calibrator is not written as PATTERN=CHOICE.
    """
    return {
        "precision": {"*": precision, **_parse_pairs("--pin", args.pin)},
        "calibrator": args.calibrator,
        "target": args.target,
        "weights": args.weights,
        "sparsity": args.sparsity,
        "scales": args.scales,
        "calibrators": _parse_pairs("--calibrate", args.calibrate),
        "treatments": args.treat,
        "rewrites": args.rewrite,
    }


def open_study(args: argparse.Namespace) -> Study:
    """A study of the model that is named, with its data; ``--data`` takes the place of a sample's data and task.

    Raises:
        RtlabError: one of them cannot be used.
    """
    from rtlab.api import Study
    from rtlab.core.task import Task

    if args.preprocessing is not None and args.data is None:
        raise CalibrationError(
            "Cannot use --preprocessing: it is for a folder of images, and --data names none. Give --data FOLDER."
        )
    sample = _load_sample(args.model)
    if sample is not None:
        _refuse_changes(args, "shape", "until")
    model = _load_part(args) if sample is None else sample.model
    if args.data:
        user_data = _read_data(args, model)
        return Study(model, data=user_data, task=_create_task(args, user_data))
    data, task = (None, None) if sample is None else (sample.calibration, sample.task)
    if hasattr(args, "metric") and args.labels is not None:
        raise CalibrationError(
            f"Cannot score by --labels {args.labels}: nothing says of which samples. Give --data D.npz beside it."
        )
    if metric := getattr(args, "metric", None):
        if task is None:
            raise CalibrationError(
                f"Cannot score by --metric {metric}: there are no samples. Give --data D.npz, and --labels L.npy "
                "where there are some."
            )
        task = Task(task.data, task.labels, metric=metric)
    return Study(model, data=data, task=task)


def _load_part(args: argparse.Namespace) -> Model:
    """The model up to the values of ``--until``, which may lie within a function of it.

    Raises:
        ModelError: it cannot be loaded, or has no such value.
    """
    from rtlab.core.model import load
    from rtlab.study.remedies import expose_values

    shapes = _parse_shapes("--shape", args.shape)
    try:
        return load(args.model, shapes=shapes, until=args.until)
    except ModelError as error:
        if not any(f'at "{value}": no node' in str(error) for value in args.until or ()):
            raise
        model = load(args.model, shapes=shapes)
        flat = expose_values(model, args.until)
        if flat is model:
            raise
        return flat.extract_until(args.until)


def _create_task(args: argparse.Namespace, data: CalibrationData) -> Task | None:
    """What variants are scored by on samples of the user's; without labels, the answers of fp32 count.

    Raises:
        CalibrationError: the labels cannot be read, or are not one for each sample.
    """
    from rtlab.core.task import Task

    # Labels without a metric are a loss, of which no variant has a score.
    if not hasattr(args, "metric") or not (args.labels or args.metric or args.command in _SCORING):
        return None
    if args.labels is None:
        return Task(data, metric=args.metric)
    label_array = labels(args.labels)
    if label_array.ndim and data.count is not None and len(label_array) != data.count:
        raise CalibrationError(
            f"Cannot score by --labels {args.labels}: there are {len(label_array)} labels for {data.count} samples. "
            "Give one for each."
        )
    return Task(data, label_array, metric=args.metric)


def plan_first_engine(args: argparse.Namespace) -> Study:
    """The study of a model with one variant, not built yet, named after its precision."""
    if args.model is None:
        raise VariantError(
            f'Cannot build "{args.first}" with every compiler: there is no model to build. Give --model.'
        )
    study = _open_comparison_study(args)
    release = (args.compiler or [None])[0]
    study.add(args.first, precision=args.first, target=args.target, compiler=release)
    return study


def _open_comparison_study(args: argparse.Namespace) -> Study:
    from rtlab.api import Study
    from rtlab.core.model import load, make_empty_model

    if args.model is None:
        return Study(make_empty_model())
    sample = _load_sample(args.model)
    if sample is None:
        return Study(load(args.model, shapes=_parse_shapes("--shape", args.shape), weights=False))
    _refuse_changes(args, "shape")
    return Study(sample.model, data=sample.calibration, task=sample.task)


def _refuse_changes(args: argparse.Namespace, *options: str) -> None:
    """Raise ``ModelError`` where an option would change a sample."""
    for option in options:
        if getattr(args, option):
            raise ModelError(
                f"Cannot apply --{option} to a sample: its shapes are set. Give the path of a file."
            )


def _load_sample(name: str) -> Sample | None:
    """The sample of this name, unless there is a file of this name."""
    from rtlab import samples

    return samples.load(name) if name in samples.names() and not Path(name).exists() else None


def open_both_engines(args: argparse.Namespace) -> tuple[Study, list[str]]:
    """The study of two engines, and what they are called."""
    study = _open_comparison_study(args)
    names: list[str] = []
    if args.compiler and len(args.compiler) > 2:
        raise VariantError("Cannot compare with --compiler: it takes one release or two.")
    # One release builds both, two build one each.
    releases = [*(args.compiler or [None])] * 2
    for place, what, release in (("first", args.first, releases[0]), ("second", args.second, releases[1])):
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


def _read_data(args: argparse.Namespace, model: Model) -> CalibrationData:
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
    """The labels of samples, from an .npy; ``CalibrationError`` where it cannot be read."""
    import numpy as np

    try:
        with open_arrays(path) as array:
            return np.asarray(array)
    except (OSError, ValueError) as error:
        raise CalibrationError(
            f'Cannot read labels from "{path}": {error}. Give an .npy with one label for each sample.'
        ) from error


def rewrite_for_cli(message: str) -> str:
    """A message with the command line's own words for sizes in the place of Python's."""

    def options(match: re.Match[str]) -> str:
        shapes = re.findall(_SHAPE, match[1])
        return " ".join(
            "--shape " + shlex.quote(f"{name}={sizes.replace(', ', 'x')}") for name, sizes in shapes
        )

    return _SIZES.sub(options, message)


#: The shape of an input, or the size of a symbol.
_SIZED = r"(.+)=(-?\d+(?:[xX×]-?\d+)*)"
#: How each option with an equals sign is written: its regular expression, its form, and what to do about another.
_FORMS = {
    "--shape": (_SIZED, "NAME=1x3x224x224", "Write sizes joined by x."),
    "--sizes": (_SIZED, "NAME=N", 'Write for example --sizes "sequence_length=1,past_sequence_length=127".'),
    "--pin": (r"(.+)=([^=]+)", "PATTERN=PRECISION", 'Write for example --pin "/head/*=fp16".'),
    # A calibrator may have an equals sign in its brackets.
    "--calibrate": (
        r"(.+?)=(\w+(?:\(.*\))?)",
        "PATTERN=CALIBRATOR",
        'Write for example --calibrate "/head/*=percentile(99.9)".',
    ),
}


def _parse_pairs(option: str, entries: Sequence[str]) -> dict[str, str]:
    """What stands before and behind the equals signs of a repeated option.

    Raises:
        RtlabError: one of them is not written so.
    """
    pattern, form, remedy = _FORMS[option]
    pairs: dict[str, str] = {}
    for entry in entries:
        match = re.fullmatch(pattern, entry)
        if match is None:
            raise RtlabError(f'Cannot read {option} "{entry}": it is not {form}. {remedy}')
        pairs[match[1]] = match[2]
    return pairs


def _parse_shapes(option: str, entries: Sequence[str]) -> dict[str, tuple[int, ...]]:
    return {
        name: tuple(map(int, re.split("[xX×]", sizes)))
        for name, sizes in _parse_pairs(option, entries).items()
    }
