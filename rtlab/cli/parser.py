"""The arguments of the command line."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Any

from rtlab.cli import checking, reporting
from rtlab.cli.budget import Seconds
from rtlab.core.budget import BUDGET_S
from rtlab.core.calibrators import METHODS

#: Files of an engine and what writes them.
FILES = {
    "layers": "trtexec --exportLayerInfo",
    "profile": "trtexec --exportProfile",
    "times": "trtexec --exportTimes",
    "log": "a verbose build log: trtexec --verbose",
    "output": "trtexec --exportOutput",
    "metadata": "device and version, as NVIDIA's trex writes them",
    "cache": "the calibration cache that it was built with",
    "build": "a recorded build: rtlab inspect MODEL --save",
}
_PRECISIONS = "fp32, tf32, fp16, bf16, int8, fp8, int4 or fp4"


def create_parser(works: Mapping[str, Callable[[argparse.Namespace], int]]) -> argparse.ArgumentParser:
    """The parser of all commands; ``works`` does each, by its name."""
    main_parser = argparse.ArgumentParser(
        prog="rtlab", description="See what TensorRT does to an ONNX model.", allow_abbrev=False
    )
    commands = main_parser.add_subparsers(dest="command", metavar="COMMAND")

    lab_parser = commands.add_parser("lab", help="open JupyterLab on a copy of the notebooks")
    lab_parser.add_argument(
        "folder", nargs="?", default="rtlab-notebooks", help="where the copy goes (default: %(default)s)"
    )
    lab_parser.add_argument("--port", type=int, help="port of the server on this machine")
    lab_parser.add_argument(
        "--no-browser", action="store_true", help="print the address instead of opening a browser"
    )

    inspect_parser = commands.add_parser("inspect", help="build one variant of a model and list its layers")
    _precision_argument(inspect_parser, "fp32")
    inspect_parser.add_argument("--save", metavar="B.json", help="also write the build, to read it anywhere")
    for more in (_answer_arguments, _model_arguments, _build_arguments):
        more(inspect_parser)

    read_parser = commands.add_parser("read", help="read an engine that another machine built, and judge it")
    read_parser.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        help="files of one engine, whole or in pieces; what each is shows from what is in it; - reads what is piped in",
    )
    for kind, source in FILES.items():
        read_parser.add_argument(f"--{kind}", metavar="F", help=source)
    read_parser.add_argument(
        "--optimization-profile", type=int, metavar="K", help="which of several (default: the first)"
    )
    read_parser.add_argument("--model", metavar="M.onnx", help="the ONNX model that it was built from")
    read_parser.add_argument("-o", "--output-html", metavar="R.html", help="also write a report")
    _answer_arguments(read_parser)

    compare_parser = commands.add_parser(
        "compare", help="show where the time went from one engine to another, by groups of ONNX nodes"
    )
    compare_parser.add_argument(
        "first", help="a folder or a file of an engine, or a precision to build --model in"
    )
    compare_parser.add_argument(
        "second", help='the same; or "compilers", to see the first with every release of the compiler here'
    )
    compare_parser.add_argument(
        "--model", metavar="M.onnx", help="the ONNX model of both, or a sample's name"
    )
    compare_parser.add_argument("--target", help="what a precision is built for (default: the backend's)")
    compare_parser.add_argument(
        "--compiler",
        nargs="+",
        action=_OneOrTwo,
        metavar="RELEASE",
        help="the release of the compiler that builds, or one for the first and one for the second",
    )
    _json_argument(compare_parser)

    _why_arguments(commands)
    _bisect_arguments(commands)
    _advise_arguments(commands)
    for accuracy in (_sensitivity_arguments, _repair_arguments, _check_arguments):
        accuracy(commands)

    prepare_parser = commands.add_parser(
        "prepare", help="write the ONNX model that expresses a precision in its graph, to build it elsewhere"
    )
    _precision_argument(prepare_parser, "int8")
    prepare_parser.add_argument(
        "-o", "--output", required=True, metavar="OUT.onnx", help="the prepared model"
    )
    prepare_parser.add_argument(
        "--cache", metavar="OUT.cache", help="also a calibration cache, for TensorRT 10's implicit INT8"
    )
    prepare_parser.add_argument(
        "--cache-version",
        metavar="DIGITS",
        help="version at the head of the cache, such as 8601 or 101601: TensorRT ignores a cache of another",
    )
    _json_argument(prepare_parser)
    _model_arguments(prepare_parser)

    report_parser = commands.add_parser(
        "report", help="build variants of a model and write them as one HTML file"
    )
    reporting.arguments(report_parser)
    report_parser.add_argument(
        "--precision", action="append", help=f"{_PRECISIONS}; repeat it for several variants (default: fp32)"
    )
    _model_arguments(report_parser)
    _build_arguments(report_parser)

    backends_parser = commands.add_parser("backends", help="what is available here, and why not")
    _json_argument(backends_parser)

    _compilers_arguments(commands)

    doctor_parser = commands.add_parser(
        "doctor", help="try everything that this machine can do, and say what to report"
    )
    doctor_parser.add_argument("--backend", help="only this one (default: all)")
    _json_argument(doctor_parser)
    for name, work in works.items():
        commands.choices[name].set_defaults(work=work)
    return main_parser


def _compilers_arguments(commands: Any) -> None:
    compilers_parser = commands.add_parser(
        "compilers", help="keep several releases of TensorRT-RTX side by side: list, add or remove one"
    )
    actions = compilers_parser.add_subparsers(dest="action", metavar="ACTION")
    for action, what in (
        ("list", "which are here, where, how large, and whether they work"),
        ("add", "install one into a folder of its own, with pip"),
        ("remove", "take an added one away"),
    ):
        one = actions.add_parser(action, help=what)
        if action != "list":
            one.add_argument("version", help="such as 1.5, or 1.5.0.114 in full")
        if action == "add":
            one.add_argument(
                "--from",
                dest="source",
                metavar="FOLDER",
                help="where its wheels lie, for a machine without a network",
            )
        _json_argument(one)
    compilers_parser.set_defaults(action="list", json=False)


def _why_arguments(commands: Any) -> None:
    why_parser = commands.add_parser(
        "why",
        help="ask the compiler, by building parts, why two neighbours are not one layer, or why nodes are",
    )
    _precision_argument(why_parser, "fp32")
    _allowance_arguments(why_parser, builds=60)
    why_parser.add_argument(
        "--again",
        action="store_true",
        help="ask anew what was asked before, instead of the earlier answer",
    )
    why_parser.add_argument("-o", "--output", metavar="R.json", help="also write the verdict as a record")
    why_parser.add_argument(
        "node", help="one of two neighbours, by its id; alone, why it is one layer with others"
    )
    why_parser.add_argument("other", nargs="?", help="the other one")
    _compiler_arguments(why_parser)
    why_parser.set_defaults(no_run=True, budget=BUDGET_S)


def _advise_arguments(commands: Any) -> None:
    advise_parser = commands.add_parser(
        "advise", help="ask the compiler about all missed fusions, and try remedies on the whole model"
    )
    _precision_argument(advise_parser, "fp32")
    advise_parser.add_argument(
        "--seconds",
        type=float,
        default=60.0,
        help="how long it may take, without the whole build (default: %(default)g)",
    )
    _json_argument(advise_parser)
    _model_arguments(advise_parser)
    _compiler_arguments(advise_parser)
    advise_parser.set_defaults(no_run=True, budget=BUDGET_S)


def _sensitivity_arguments(commands: Any) -> None:
    sensitivity_parser = commands.add_parser(
        "sensitivity", help="which nodes cause a variant's error, by what each does to the outputs"
    )
    _precision_argument(sensitivity_parser, "int8")
    sensitivity_parser.add_argument(
        "--asks",
        choices=("only", "released"),
        default="only",
        help="what each harms alone, or what it would win back alone (default: %(default)s)",
    )
    sensitivity_parser.add_argument(
        "--by", choices=("node", "quantizer"), default="node", help="what is ranked (default: %(default)s)"
    )
    sensitivity_parser.add_argument(
        "--labels", metavar="L.npy", help="a label for each sample: their cross-entropy is the loss"
    )
    sensitivity_parser.add_argument(
        "--verify",
        type=int,
        default=8,
        metavar="K",
        help="run the first K of an estimate (default: %(default)s)",
    )
    sensitivity_parser.add_argument(
        "--measure", action="store_true", help="run all of them, and estimate nothing"
    )
    sensitivity_parser.add_argument(
        "--seconds", type=float, default=60.0, help="how long it may take (default: %(default)g)"
    )
    _json_argument(sensitivity_parser)
    _model_arguments(sensitivity_parser)
    sensitivity_parser.set_defaults(backend=None, compiler=None)


def _repair_arguments(commands: Any) -> None:
    repair_parser = commands.add_parser(
        "repair", help="what gives a variant's accuracy back, the cheapest first, and the model with it"
    )
    _precision_argument(repair_parser, "int8")
    repair_parser.add_argument(
        "--max-drop",
        type=float,
        default=0.5,
        metavar="POINTS",
        help="how far the score may stay behind fp32, in its unit (default: %(default)g)",
    )
    repair_parser.add_argument(
        "--labels", metavar="L.npy", help="a label for each sample of --data; those of fp32 without"
    )
    repair_parser.add_argument("--metric", help="what is counted of outputs and labels (default: top-1)")
    repair_parser.add_argument("-o", "--output", metavar="OUT.onnx", help="the repaired model")
    repair_parser.add_argument(
        "--seconds", type=float, default=600.0, help="how long it may take (default: %(default)g)"
    )
    _json_argument(repair_parser)
    _model_arguments(repair_parser)
    _compiler_arguments(repair_parser)
    repair_parser.set_defaults(no_run=True, budget=BUDGET_S)


def _check_arguments(commands: Any) -> None:
    check_parser = commands.add_parser("check", **checking.PARSER)
    _precision_argument(check_parser, "int8")
    _model_arguments(check_parser)
    _build_arguments(check_parser)
    checking.arguments(check_parser)


def _bisect_arguments(commands: Any) -> None:
    bisect_parser = commands.add_parser(
        "bisect",
        help="find what changed from one release of the compiler to another, and the fewest nodes that show it",
    )
    _precision_argument(bisect_parser, "fp32")
    bisect_parser.add_argument(
        "--compiler",
        nargs="+",
        action=_OneOrTwo,
        required=True,
        metavar="RELEASE",
        help="the two, such as 1.6 1.7",
    )
    _allowance_arguments(bisect_parser, builds=200)


def _allowance_arguments(parser: argparse.ArgumentParser, *, builds: int) -> None:
    """What an experiment with the compiler may take, how it is printed, and the model that it is about."""
    parser.add_argument(
        "--builds", type=int, default=builds, help="how many parts may be built (default: %(default)s)"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=60.0,
        help="how long it may take, without building the whole model (default: %(default)g)",
    )
    _json_argument(parser)
    _model_arguments(parser)


def _answer_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ask", metavar="QUESTION", help="only the answer to one, such as kernels")
    _json_argument(parser)


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
        help=f"{', '.join(METHODS)}, or a percentile such as percentile(99.9) (default: auto; minmax for fp8)",
    )
    parser.add_argument(
        "--calibrate",
        action="append",
        default=[],
        metavar="PATTERN=CALIBRATOR",
        help="another calibrator for single values: their names, or those of nodes that read them, with * and ?",
    )
    parser.add_argument(
        "--treat",
        action="append",
        default=[],
        metavar="TREATMENT",
        help="what makes rounding cost less accuracy: equalize, smooth(0.5), reconstruct or correct, of all nodes or "
        'of a pattern, as in "equalize /layer1/*"',
    )
    parser.add_argument(
        "--scales", metavar="IN.cache", help="a TensorRT calibration cache in place of a calibrator"
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
        metavar="D.npz",
        help="an .npz with one array per model input, samples first; an .npy; or a folder of images",
    )
    parser.add_argument(
        "--preprocessing",
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
    parser.add_argument("--target", help="cpu, gpu, npu, sm86, sm89, sm120, ... (default: the backend's)")


def _task_arguments(parser: argparse.ArgumentParser) -> None:
    """What variants are scored by."""
    parser.add_argument(
        "--labels",
        metavar="L.npy",
        help="a label for each sample of --data, which is scored on then beside fp32",
    )
    parser.add_argument("--metric", help="top-1, top-5, psnr, mse, cosine or perplexity (default: top-1)")


def _build_arguments(parser: argparse.ArgumentParser) -> None:
    _task_arguments(parser)
    parser.add_argument(
        "--backend",
        help="tensorrt-rtx, onnxruntime, onnxruntime:openvino, ...: see rtlab backends (default: the best available)",
    )
    parser.add_argument("--no-run", action="store_true", help="only build: no times, no errors")
    parser.add_argument(
        "--budget",
        type=Seconds,
        default=BUDGET_S,
        metavar="SECONDS",
        help="what all of it may take, loading and building included: what is measured by then is shown; 0 only "
        "builds, inf measures on all samples (default: %(default)g for measuring each variant, however long it builds)",
    )
    _release_argument(parser)


def _release_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--compiler",
        metavar="RELEASE",
        help="a release that is kept here, such as 1.5: see rtlab compilers (default: the environment's own)",
    )


def _compiler_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--backend", help="the compiler: see rtlab backends (default: the best available)")
    _release_argument(parser)


def _json_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def _precision_argument(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument("--precision", default=default, help=f"{_PRECISIONS} (default: %(default)s)")


class _OneOrTwo(argparse.Action):
    """One value or two."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        if len(values) > 2:
            parser.error(f"{option_string} takes one release or two")
        setattr(namespace, self.dest, values)
