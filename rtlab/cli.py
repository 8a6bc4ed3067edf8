"""The command line: ``rtlab`` with ``lab``, ``inspect``, ``read``, ``compare``, ``prepare``, ``report`` and others."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rtlab.core import files
from rtlab.core.stage import BUDGET_S
from rtlab.core.variant import Method
from rtlab.errors import CalibrationError, ModelError, RtlabError, Unavailable, VariantError, boundary

if TYPE_CHECKING:
    from rtlab.core.data import CalibrationData
    from rtlab.core.model import Model
    from rtlab.questions.difference.diff import Difference
    from rtlab.questions.roofline.roofs import Point
    from rtlab.study import Result, Study

#: Exit codes: the command line was wrong (argparse's own), or the work failed.
_USAGE, _FAILED = 2, 1
#: Files of an engine and what writes them.
_FILES = {
    "layers": "trtexec --exportLayerInfo",
    "profile": "trtexec --exportProfile",
    "times": "trtexec --exportTimes",
    "log": "a verbose build log: trtexec --verbose",
    "output": "trtexec --exportOutput",
    "metadata": "device and version, as NVIDIA's trex writes them",
    "cache": "the calibration cache that it was built with",
}
_PRECISIONS = "fp32, tf32, fp16, bf16, int8, fp8, int4 or fp4"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    parser = _parser()
    given = parser.parse_args(arguments)
    if given.command is None:
        parser.print_help()
        return _USAGE
    for stream in (sys.stdout, sys.stderr):
        # Names from files hold what a terminal's encoding may not; a table with question marks is still a table.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        with boundary(f'do "rtlab {given.command}"'):
            return int(given.work(given))
    except RtlabError as error:
        if getattr(given, "json", False):
            print(json.dumps({"error": {"kind": type(error).__name__, "message": str(error)}}))
        print(f"rtlab: {error}", file=sys.stderr)
        return _FAILED
    except KeyboardInterrupt:
        print("rtlab: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # Whoever read the output, such as head, has seen enough; the interpreter must not try to flush again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rtlab", description="See what TensorRT does to an ONNX model.", allow_abbrev=False
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")

    lab = commands.add_parser("lab", help="open JupyterLab on a copy of the notebooks")
    lab.add_argument(
        "folder", nargs="?", default="rtlab-notebooks", help="where the copy goes (default: %(default)s)"
    )
    lab.add_argument("--port", type=int, default=None, help="port of the server on this machine")
    lab.add_argument(
        "--no-browser", action="store_true", help="print the address instead of opening a browser"
    )
    lab.set_defaults(work=_lab)

    look = commands.add_parser("inspect", help="build one variant of a model and list its layers")
    look.add_argument("--precision", default="fp32", help=f"{_PRECISIONS} (default: %(default)s)")
    look.add_argument("--json", action="store_true", help="print one JSON object")
    _model_arguments(look)
    _build_arguments(look)
    look.set_defaults(work=_inspect)

    heard = commands.add_parser("read", help="read an engine that another machine built, and judge it")
    heard.add_argument(
        "files", nargs="*", metavar="FILE", help="files of one engine; what each is shows from what is in it"
    )
    for kind, source in _FILES.items():
        heard.add_argument(f"--{kind}", default=None, metavar="F", help=source)
    heard.add_argument(
        "--optimization-profile",
        type=int,
        default=None,
        metavar="K",
        help="which of several (default: the first)",
    )
    heard.add_argument(
        "--model", default=None, metavar="M.onnx", help="the ONNX model that it was built from"
    )
    heard.add_argument("-o", "--output-html", default=None, metavar="R.html", help="also write a report")
    heard.add_argument("--json", action="store_true", help="print one JSON object")
    heard.set_defaults(work=_read)

    both = commands.add_parser(
        "compare", help="tell where the time went from one engine to another, by groups of ONNX nodes"
    )
    for place in ("first", "second"):
        both.add_argument(place, help="a folder or a file of an engine, or a precision to build --model in")
    both.add_argument(
        "--model", default=None, metavar="M.onnx", help="the ONNX model of both, or a sample's name"
    )
    both.add_argument("--target", default=None, help="what a precision is built for (default: the backend's)")
    both.add_argument("--json", action="store_true", help="print one JSON object")
    both.set_defaults(work=_compare)

    ready = commands.add_parser(
        "prepare", help="write the ONNX model that expresses a precision in its graph, to build it elsewhere"
    )
    ready.add_argument("--precision", default="int8", help=f"{_PRECISIONS} (default: %(default)s)")
    ready.add_argument("-o", "--output", required=True, metavar="OUT.onnx", help="the prepared model")
    ready.add_argument(
        "--cache",
        default=None,
        metavar="OUT.cache",
        help="also a calibration cache, for TensorRT 10's implicit INT8",
    )
    ready.add_argument(
        "--cache-version",
        default=None,
        metavar="DIGITS",
        help="version at the head of the cache, such as 8601 or 101601: TensorRT ignores a cache of another",
    )
    ready.add_argument("--json", action="store_true", help="print one JSON object")
    _model_arguments(ready)
    ready.set_defaults(work=_prepare)

    told = commands.add_parser("report", help="build variants of a model and write them as one HTML file")
    told.add_argument("-o", "--output", default="report.html", help="the file (default: %(default)s)")
    told.add_argument(
        "--precision",
        action="append",
        help=f"{_PRECISIONS}; repeat it for several variants (default: fp32)",
    )
    _model_arguments(told)
    _build_arguments(told)
    told.set_defaults(work=_report)

    listed = commands.add_parser("backends", help="what is available here, and why not")
    listed.add_argument("--json", action="store_true", help="print one JSON object")
    listed.set_defaults(work=_backends)

    well = commands.add_parser(
        "doctor", help="try everything that this machine can do, and say what to report"
    )
    well.add_argument("--backend", default=None, help="only this one (default: all)")
    well.add_argument("--json", action="store_true", help="print one JSON object")
    well.set_defaults(work=_doctor)
    return parser


def _model_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="an ONNX file, or the name of a sample")
    parser.add_argument(
        "--pin",
        action="append",
        default=[],
        metavar="PATTERN=PRECISION",
        help="another precision for nodes: an id or a name with * and ?, or op:Conv; of several, the last counts",
    )
    parser.add_argument(
        "--calibrator",
        default=None,
        help=f"{', '.join(m.value for m in Method)}, with its parameter in brackets where it has one, such as "
        "percentile(99.9) (default: auto; minmax for fp8)",
    )
    parser.add_argument(
        "--scales",
        default=None,
        metavar="IN.cache",
        help="a TensorRT calibration cache in place of a calibrator",
    )
    parser.add_argument(
        "--weights", default="channel", help="one scale per channel or per tensor (default: channel)"
    )
    parser.add_argument(
        "--sparsity",
        nargs="?",
        action="append",
        const="*",
        default=[],
        metavar="PATTERN",
        help="prune weights to 2:4: all that can be, or those of the nodes that the pattern fits",
    )
    parser.add_argument(
        "--data",
        default=None,
        metavar="D.npz",
        help="an .npz with one array per model input, samples first; an .npy; or a folder of images",
    )
    parser.add_argument(
        "--preprocessing",
        default=None,
        metavar="JSON",
        help='how an image becomes an input, such as {"size": [224, 224], "resize": 256, "mean": 0.5, "std": 0.25}',
    )
    parser.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="NAME=1x3x224x224",
        help="size of a dynamic input, or of a symbol: H=640",
    )
    parser.add_argument(
        "--target", default=None, help="cpu, gpu, npu, sm86, sm89, sm120, ... (default: the backend's)"
    )


def _build_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--backend",
        default=None,
        help="tensorrt-rtx, onnxruntime, onnxruntime:openvino, ...: see rtlab backends (default: the best available)",
    )
    parser.add_argument("--no-run", action="store_true", help="only build: no times, no errors")
    parser.add_argument(
        "--budget",
        type=float,
        default=BUDGET_S,
        metavar="SECONDS",
        help="what measuring each variant may take here beyond compiling; inf for all samples (default: %(default)g)",
    )


def _backends(given: argparse.Namespace) -> int:
    from rtlab.study import available

    table = available()
    if given.json:
        print(json.dumps({name: dataclasses.asdict(a) for name, a in table.items()}))
        return 0
    width = max(len(n) for n in table)
    for name, a in table.items():
        print(f"{name:<{width}}  {'yes' if a.ok else 'no '}  {a.version or a.reason}")
    return 0


def _inspect(given: argparse.Namespace) -> int:
    from rtlab.questions.titles import titles
    from rtlab.view.document import document

    study = _study(given, [given.precision])
    result = study[given.precision]
    if given.json:
        print(json.dumps(document(result.facts, study.model, titles(study.snapshot())), allow_nan=False))
    else:
        _print(result, study)
    return 0


def _read(given: argparse.Namespace) -> int:
    from rtlab.questions.titles import titles
    from rtlab.study import read
    from rtlab.view.document import document

    named = {kind: path for kind in _FILES if (path := getattr(given, kind)) is not None}
    study = read(*given.files, model=given.model, optimization_profile=given.optimization_profile, **named)
    result = study["engine"]
    if given.output_html:
        study.to_html(given.output_html)
    if given.json:
        print(json.dumps(document(result.facts, study.model, titles(study.snapshot())), allow_nan=False))
        return 0
    _print(result, study)
    _judge(result)
    return 0


def _compare(given: argparse.Namespace) -> int:
    from rtlab.questions.titles import titled, titles
    from rtlab.view.document import compared

    study, names = _both(given)
    called = titles(study.snapshot())
    found = study.difference(*names)
    # What was compiled for a GPU is compared there first: the CPU in its place runs other kernels.
    target = study.difference(*names, gpu="target") if all(study[n].estimate for n in names) else None
    if given.json:
        told = compared(found, study.model, called)
        told["estimate"] = None if target is None else compared(target, study.model, called)
        print(json.dumps(told, allow_nan=False))
        return 0
    found, target = titled(found, called), target and titled(target, called)
    if target is not None and target.totals is not None:
        _print_difference(target, "estimated for the GPU of each")
        print()
    for side in (target.first, target.second) if target is not None else ():
        print(f"{side.name}: {side.withheld}\n" if side.withheld else "", end="")
    _print_difference(found)
    return 0


def _both(given: argparse.Namespace) -> tuple[Study, list[str]]:
    """The study of two engines, and what they are called."""
    from rtlab import samples
    from rtlab.core.model import absent, load
    from rtlab.study import Study

    if given.model is None:
        study = Study(absent())
    elif given.model in samples.names() and not Path(given.model).exists():
        sample = samples.load(given.model)
        study = Study(sample.model, data=sample.calibration, task=sample.task)
    else:
        study = Study(load(given.model, weights=False))
    names = []
    for place, what in (("first", given.first), ("second", given.second)):
        path = Path(what)
        given_file = bool(what) and path.exists()
        title = path.name if given_file else what
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
            study.add(name, precision=what, target=given.target)
            study.run([name])
    return study, names


def _print_difference(found: Difference, how: str = "") -> None:
    """The totals of two engines and what their groups of nodes cost."""
    from rtlab.documents.numbers import counted, number
    from rtlab.questions.difference import unexplained

    if found.totals is not None and found.delta is not None:
        before, after = found.totals
        places = " and ".join(dict.fromkeys(s.engine.place for s in (found.first, found.second)))
        told = how or f"{found.origin} on {places}"
        print(
            f"{found.first.name} {number(before, 'ms')} → {found.second.name} {number(after, 'ms')}: "
            f"{found.delta:+.4g} ms ({told})"
        )
    if words := unexplained(found):
        print(words)
        return
    rows = [
        (
            _plain(g.title),
            f"{len(g.first.layers)} → {len(g.second.layers)}",
            number(g.first.time, "ms"),
            number(g.second.time, "ms"),
            "—" if g.delta is None else f"{g.delta:+.4g} ms",
            g.cause,
        )
        for g in (found.largest(len(found.groups)) or found.groups)
    ]
    if found.rest is not None and None not in {found.first.whole, found.second.whole}:
        rows.append(("outside the layers", "", "", "", f"{found.rest:+.4g} ms", ""))
    steps = " → ".join(dict.fromkeys(f"{counted(s.engine)}s" for s in (found.first, found.second)))
    _columns(("nodes", steps, "before", "after", "difference", "what differs"), rows)
    for doubt in found.doubts:
        print(f"\n{doubt}")


def _judge(result: Result) -> None:
    """Where the time of an engine goes, what the builder did, and what is worth changing."""
    from rtlab.documents.numbers import number

    for title, slices in (("kind", result.kinds()), ("precision", result.precisions())):
        print(f"\nlayers by {title}")
        _columns(
            (title, "layers", "time", "share"),
            [
                (
                    s.name or "not told",
                    str(len(s.layers)),
                    number(s.milliseconds, "ms"),
                    number(None if s.share is None else 100 * s.share, "%"),
                )
                for s in slices
            ],
        )
    if (log := result.log) and log.attempts:
        print(f"\nlayers after each pass (reported): {' → '.join(map(str, log.attempts[log.chosen].counts))}")
    count = len(result.findings)
    print(f"\n{count or 'no'} finding{'' if count == 1 else 's'}")
    for i, found in enumerate(result.findings, 1):
        cost = f" · {found.microseconds:.3g} µs (measured)" if found.microseconds is not None else ""
        print(f"{i}. {found.title}{cost}\n   {found.cost}\n   {found.fix}\n   evidence: {found.evidence}")


def _doctor(given: argparse.Namespace) -> int:
    from rtlab.core.progress import Terminal
    from rtlab.session.selftest import doctor

    progress = Terminal()
    try:
        found = doctor(progress, backend=given.backend)
    finally:
        progress.close()
    print(json.dumps(found.as_dict(), ensure_ascii=False) if given.json else found.text)
    return _FAILED if found.failed else 0


def _prepare(given: argparse.Namespace) -> int:
    from rtlab.quantize.export import VERSION
    from rtlab.questions.titles import titles

    study, name = _opened(given), given.precision
    prepared = study.prepare(
        name,
        precision={"*": given.precision, **_pins(given.pin)},
        calibrator=given.calibrator,
        target=given.target or "cpu",
        weights=given.weights,
        sparsity=given.sparsity,
        scales=given.scales,
    )
    done = study.export(name, given.output, cache=given.cache, version=given.cache_version or VERSION)
    notes = prepared.notes
    if study.variants[name].calibrator is not None:
        seen = f"calibrated on {len(study.data)} samples of {study.data.source}"
        real = given.data is not None or study.task is not None
        notes = (seen if real else f"{seen}: give --data for the scales of real inputs", *notes)
    if given.json:
        files = {
            k: _text(v) for k, v in (("model", done.model), ("scales", done.scales), ("cache", done.cache))
        }
        print(json.dumps({"files": files, "commands": done.commands, "notes": notes}, ensure_ascii=False))
        return 0
    called = titles(study.snapshot())[name]
    print(f"{study.model.name} · {called}: {len(study.model.top)} nodes → {len(prepared.model.top)}")
    for path in filter(None, (done.model, done.scales, done.cache)):
        print(f"wrote {path}")
    for note in notes:
        print(f"note: {note}")
    print("\nbuild it elsewhere with one of")
    for line in done.commands:
        print(f"  {line}")
    return 0


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _pins(given: Sequence[str]) -> dict[str, str]:
    pins: dict[str, str] = {}
    for item in given:
        pattern, _, precision = item.rpartition("=")
        if not pattern or not precision:
            raise VariantError(
                f'Cannot read --pin "{item}": it is not PATTERN=PRECISION. Write for example --pin "/head/*=fp16".'
            )
        pins[pattern] = precision
    return pins


def _report(given: argparse.Namespace) -> int:
    precisions = given.precision or ["fp32"]
    print(_study(given, precisions).to_html(given.output))
    return 0


def _study(given: argparse.Namespace, precisions: Sequence[str]) -> Study:
    """The model's study with a variant in each of these precisions, built."""
    study = _opened(given)
    for precision in precisions:
        study.add(
            precision,
            precision={"*": precision, **_pins(given.pin)},
            calibrator=given.calibrator,
            target=given.target,
            backend=given.backend,
            weights=given.weights,
            sparsity=given.sparsity,
            scales=given.scales,
        )
    return study.run(compare=not given.no_run, budget_s=given.budget)


def _opened(given: argparse.Namespace) -> Study:
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
        return Study(sample.model, data=data, task=sample.task)
    model = load(given.model, shapes=_shapes(given.shape))
    return Study(model, data=_data(given, model) if given.data else None)


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


def _print(result: Result, study: Study) -> None:
    from rtlab.core.data import RANDOM
    from rtlab.documents.numbers import counted
    from rtlab.questions.cards.card import names
    from rtlab.questions.titles import titles
    from rtlab.view.chrome import random_words

    engine = result.engine
    # A file of names only tells no types, a log that was cut off no layers.
    told = not result.recorded or any(y.precision for y in engine.layers)
    # An engine from elsewhere is known by its types; its name is only what this command calls it.
    named = result.variant.name if result.recorded else titles(study.snapshot())[result.name]
    types = named if told else "types not told"
    print(f"{study.model.name} · {types}: {len(result.prepared.model.top)} nodes → "
          f"{len(engine.layers) - engine.sync} {counted(engine)}s"
          + (f" and {engine.sync} steps that order the streams" if engine.sync else ""))  # fmt: skip
    if result.recorded:
        known = result.coverage
        shown = f"; {known.nodes} of {known.all_nodes} nodes are in a layer, {known.explained} more explained"
        print(f"read: {engine.title}{shown if study.model.nodes and engine.layers else ''}")
    else:
        print(f"compiled: {engine.title}; building it took {engine.seconds:.2g} s (measured here)")
    _print_times(result)
    if result.score:
        print(f"{result.score.name}: {result.score.value:.2f} {result.score.unit} "
              f"(measured on {result.score.samples} held-out samples, {result.score.source})")  # fmt: skip
    for standing in result.missing:
        # Whoever asked for no more than the build knows it.
        if standing.why != "not asked":
            print(f"{standing.text}{'; give more with --budget' if standing.why == 'budget' else ''}")
    noise = f"{words} with --data D.npz" if (words := random_words(result.facts)) else ""
    for note in filter(None, (noise, *result.prepared.notes, *engine.notes, *_overflow(result))):
        print(f"note: {note}")
    called = names(result.facts, study.model)
    rows = [_line(result, study, layer, called[layer.id]) for layer in engine.layers]
    time = f"{result.timing.processor} time" if result.timing else "time"
    gpu = [f"{result.estimate.peaks.name} (estimated)"] if result.estimate and _estimated(result) else []
    noisy = result.accuracy is not None and result.accuracy.synthetic
    errors = f"SQNR, {RANDOM}" if noisy else "SQNR"
    _columns(("step", "kind", "layer" if study.model.nodes else "name", "type", *gpu, time, errors), rows)
    if result.mapping.missing:
        print("\nnodes without a layer")
        _columns(
            ("node", "reason"), [(study.model.by_id[m.node].title, m.reason) for m in result.mapping.missing]
        )


def _print_times(result: Result) -> None:
    """What an inference takes: estimated for the GPU that the engine is for, then as it was measured."""
    from rtlab.documents.numbers import number
    from rtlab.questions.roofline import estimate_source

    if words := estimate_source(result.facts):
        sum_ = result.estimate.estimated if result.estimate else None
        print(f"estimate: {words}" if sum_ is None else f"whole inference: {number(sum_, 'ms')} ({words})")
    times = result.timing
    if times is None:
        return
    print(f"whole inference: {number(times.shown, 'ms')} ({times.origin})")
    if tails := [f"p{p} {number(t, 'ms')}" for p, t in times.percentiles.items() if p > 50]:
        print(f"  of {times.inferences} inferences: {', '.join(tails)}")
    if times.scaled:
        print(f"  {times.processor} times of the layers are {times.scaled}")


def _overflow(result: Result) -> tuple[str, ...]:
    """What left the range of its type, in words."""
    values = result.accuracy.values if result.accuracy else ()
    made = [v for v in values if v.overflowed]
    if not made:
        return ()
    first = made[0]
    more = f", and in {len(made) - 1} more values" if len(made) > 1 else ""
    text = f'{first.overflowed} of {first.elements} elements of "{first.value}" overflow{more}'
    return (f"{text} (measured on {result.accuracy.samples if result.accuracy else 0} samples)",)


def _line(result: Result, study: Study, layer: Any, called: str) -> tuple[str, ...]:
    from rtlab.documents.numbers import number
    from rtlab.relation.roles import SERVING

    pairs = sorted(result.mapping.of(layer.id), key=lambda p: study.model.by_id[p.node].index)
    nodes = [study.model.by_id[p.node] for p in pairs if p.role not in SERVING]
    time = result.layer_times.get(layer.id)
    scale = result.timing.scale if result.timing else 1.0
    errors = [e.sqnr for n in nodes if result.accuracy and (e := result.accuracy.of(n.id))]
    sqnr = "equal" if errors and errors[-1] == float("inf") else number(errors[-1], "dB") if errors else "—"
    shared = f" /{time.shared}" if time and time.shared > 1 else ""
    return (
        str(layer.index + 1),
        _plain(layer.kind),
        # Without the ONNX model, the compiler's own name tells more.
        _plain(called if study.model.nodes else layer.name),
        layer.precision or "—",
        *(
            [number(found.estimated if (found := points.get(layer.id)) else None, "ms")]
            if (points := _estimated(result))
            else []
        ),
        number(time.median * scale if time else None, "ms") + shared,
        sqnr,
    )


def _estimated(result: Result) -> Mapping[str, Point]:
    """What each layer takes on the engine's GPU; empty where no estimate is given."""
    return result.estimate.by_layer if result.estimate is not None and result.estimate.known.enough else {}


def _plain(text: str) -> str:
    """A name from a file without what steers a terminal."""
    return "".join(c if c.isprintable() else " " for c in text)


def _columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [min(60, max(len(r[i]) for r in (head, *rows))) for i in range(len(head))]
    for row in (head, *rows):
        print(
            "  ".join(
                f"{c if len(c) <= 60 else c[:59] + '…':<{w}}" for c, w in zip(row, widths, strict=True)
            ).rstrip()
        )


def _lab(given: argparse.Namespace) -> int:
    if importlib.util.find_spec("jupyterlab") is None:
        raise Unavailable(
            'Cannot open JupyterLab: package "jupyterlab" is not installed. Run pip install jupyterlab ipywidgets '
            "anywidget plotly netron."
        )
    folder = Path(given.folder).absolute()
    first = copy_notebooks(folder)
    # Not "jupyter lab", which runs the first jupyter-lab of PATH: that of another environment where this one is not
    # activated, whose kernels then lack rtlab or have another version of it.
    command = [
        sys.executable, "-m", "jupyterlab", "--ip=127.0.0.1", f"--ServerApp.root_dir={folder}",
        f"--LabApp.default_url=/lab/tree/{first}",
        # The other manager asks PyPI as soon as it is looked at.
        "--LabApp.extension_manager=readonly",
    ]  # fmt: skip
    if given.port is not None:
        command += [f"--ServerApp.port={given.port}"]
    if given.no_browser:
        command += ["--no-browser"]
    if getattr(os, "geteuid", lambda: 1)() == 0:
        # Jupyter refuses to serve as root, which is the usual user in a container.
        command += ["--allow-root"]
    # JupyterLab asks on its first start whether to fetch news, over the corner of the notebook.
    ours = str(Path(__file__).parent / "static")
    os.environ["JUPYTER_CONFIG_PATH"] = os.pathsep.join(
        filter(None, (ours, os.environ.get("JUPYTER_CONFIG_PATH")))
    )
    # It asks npm, where there is one, for a folder; npm asks its registry for news of itself now and then.
    os.environ.setdefault("NPM_CONFIG_UPDATE_NOTIFIER", "false")
    print(f"rtlab: notebooks are in {folder}; stop with Ctrl-C", file=sys.stderr)
    if os.name == "posix":
        # In our place, so that whoever ends this command ends the server.
        os.execv(sys.executable, command)  # noqa: S606 - the interpreter that runs us, with a fixed list
    return subprocess.call(command)


def copy_notebooks(folder: Path) -> str:
    """Copy the packaged notebooks that are not there yet; returns the name of the first one.

    A notebook that exists is the user's own by now and stays as it is.

    Raises:
        ModelError: the installation carries no notebooks.
        RtlabError: they cannot be written there.
    """
    here = Path(__file__).parent
    home = next((h for h in (here / "_share" / "notebooks", here.parent / "notebooks") if h.is_dir()), None)
    names = sorted(p.name for p in home.glob("*.ipynb")) if home else []
    if home is None or not names:
        raise ModelError("Cannot open the notebooks: this installation carries none. Install rtlab again.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            files.added(folder / name, (home / name).read_bytes())
    except OSError as error:
        raise RtlabError(
            f'Cannot copy the notebooks to "{folder}": {error.strerror}. Name a folder that is yours to write to: '
            "rtlab lab FOLDER."
        ) from error
    return names[0]


if __name__ == "__main__":
    sys.exit(main())
