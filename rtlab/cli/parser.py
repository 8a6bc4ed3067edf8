"""The arguments of the command line."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping
from typing import Any

from rtlab import __version__
from rtlab.cli import checking
from rtlab.cli.budget import Seconds
from rtlab.core.budget import BUDGET_S
from rtlab.core.calibrators import METHODS

_QUESTION = {"--ask QUESTION": "only the answer to one, such as kernels"}
_SHAPE = {"--shape NAME=1x3x224x224": "size of a dynamic input, or of a symbol: H=640"}
_REPEATED = {
    "--pin PATTERN=PRECISION": "another precision for nodes: an id or a name with * and ?, or op:Conv; of several, the "
    "last counts",
    "--calibrate PATTERN=CALIBRATOR": "another calibrator for single values: their names, or those of nodes that read "
    "them, with * and ?",
    "--treat TREATMENT": "what makes rounding cost less accuracy: equalize, smooth(0.5), reconstruct or correct, of "
    'all nodes or of a pattern, as in "equalize /layer1/*"',
    "--rewrite FORM": 'nodes in another form that computes the same: "inline op:Celu" writes an operator as those '
    'that define it, "fold /stem/norm" folds a normalization into the convolution before it',
    **_SHAPE,
    "--until VALUE": "cut the model at this value, which becomes an output, and leave out what comes behind",
}
_DATA = {
    "--data D.npz": "an .npz with one array per model input, samples first; an .npy; or a folder of images",
    "--preprocessing JSON": "how an image becomes an input, such as "
    '{"size": [224, 224], "resize": 256, "mean": 0.5, "std": 0.25}',
    "--scales IN.cache": "a TensorRT calibration cache in place of a calibrator",
}
_PRECISIONS = "fp32, tf32, fp16, bf16, int8, fp8, int4 or fp4"


def create_parser(  # noqa: PLR0915 - a list of arguments
    works: Mapping[str, Callable[[argparse.Namespace], int]],
) -> argparse.ArgumentParser:
    """The parser of all commands; ``works`` maps a command's name to its function."""
    main_parser = argparse.ArgumentParser(
        prog="rtlab", description="See what TensorRT does to an ONNX model.", allow_abbrev=False
    )
    main_parser.add_argument("--version", action="version", version=f"rtlab {__version__}")
    commands = main_parser.add_subparsers(dest="command", metavar="COMMAND")

    parser = commands.add_parser("lab", help="open JupyterLab on a folder, with the notebooks in it")
    add = parser.add_argument
    add(
        "folder",
        nargs="?",
        default=".",
        help="what it shows; the notebooks are copied to rtlab-notebooks in it",
    )
    add("--port", type=int, help="port of the server on this machine")
    add("--no-browser", action="store_true", help="print the address instead of opening a browser")

    parser = commands.add_parser("inspect", help="build one variant of a model and list its layers")
    _add_precision(parser, "fp32")
    _add_texts(parser, {"--save B.json": "also write the build, to read it anywhere", **_QUESTION})
    _add_json(parser)
    _add_model(parser)
    _add_build(parser)

    parser = commands.add_parser("read", help="read an engine that another machine built, and judge it")
    parser.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        help="files of one engine, whole or in pieces; what each is shows from what is in it; - reads what is piped in",
    )
    _add_texts(parser, {"--optimization-profile K": "which of several (default: the first)"}, type=int)
    _add_texts(parser, {"--model M.onnx": "the ONNX model that it was built from", **_QUESTION})
    parser.add_argument("-o", "--output-html", metavar="R.html", help="also write a report")
    _add_json(parser)

    parser = commands.add_parser(
        "compare", help="show where the time went from one engine to another, by groups of ONNX nodes"
    )
    add = parser.add_argument
    add("first", help="a folder or a file of an engine, or a precision to build --model in")
    add("second", help='the same; or "compilers", to see the first with every release of the compiler here')
    add("--target", help="what a precision is built for (default: the backend's)")
    _add_texts(parser, {"--model M.onnx": "the ONNX model of both, or a sample's name"})
    _add_texts(parser, _SHAPE, action="append", default=[])
    releases = "the release of the compiler that builds, or one for the first and one for the second"
    _add_texts(parser, {"--compiler RELEASE": releases}, nargs="+")
    _add_json(parser)

    parser = commands.add_parser(
        "why",
        help="ask the compiler, by building parts, why two neighbours are not one layer, or why nodes are",
    )
    _add_precision(parser, "fp32")
    _add_limits(parser, builds=60)
    add = parser.add_argument
    add("--again", action="store_true", help="ask anew what was asked before, instead of the earlier answer")
    add("-o", "--output", metavar="R.json", help="also write the verdict as a record")
    _add_model(parser)
    add("node", help="one of two neighbours, by its id; alone, why it is one layer with others")
    add("other", nargs="?", help="the other one")
    _add_compiler(parser)

    parser = commands.add_parser(
        "bisect",
        help="find what changed from one release of the compiler to another, and the fewest nodes that show it",
    )
    _add_precision(parser, "fp32")
    parser.add_argument(
        "--compiler", nargs=2, required=True, metavar="RELEASE", help="the two, such as 1.6 1.7"
    )
    _add_limits(parser, builds=200)
    _add_model(parser)

    parser = commands.add_parser(
        "advise", help="ask the compiler about all missed fusions, and try remedies on the whole model"
    )
    _add_precision(parser, "fp32")
    _add_limits(parser)
    _add_model(parser)
    _add_compiler(parser)

    parser = commands.add_parser(
        "sensitivity", help="which nodes cause a variant's error, by what each does to the outputs"
    )
    _add_precision(parser, "int8")
    add = parser.add_argument
    add(
        "--asks",
        choices=("only", "released"),
        default="only",
        help="what each harms alone, or what it would win back alone (default: %(default)s)",
    )
    _add_texts(
        parser, {"--labels L.npy": "the class of each sample: top-1 verifies the first of the ranking"}
    )
    _add_texts(
        parser, {"--verify K": "run the first K of an estimate (default: %(default)s)"}, type=int, default=8
    )
    _add_limits(parser)
    _add_model(parser)
    parser.set_defaults(backend=None, compiler=None)

    parser = commands.add_parser(
        "repair", help="what gives a variant's accuracy back, the cheapest first, and the model with it"
    )
    _add_precision(parser, "int8")
    drop = "how far the score may stay behind fp32, in its unit (default: %(default)g)"
    _add_texts(parser, {"--max-drop POINTS": drop}, type=float, default=0.5)
    add = parser.add_argument
    _add_texts(parser, {"--labels L.npy": "a label for each sample of --data; those of fp32 without"})
    add("--metric", help="what is counted of outputs and labels (default: top-1)")
    add("-o", "--output", metavar="OUT.onnx", help="the repaired model")
    _add_limits(parser, seconds=600.0)
    _add_model(parser)
    _add_compiler(parser)

    parser = commands.add_parser("check", **checking.PARSER)
    _add_precision(parser, "int8")
    _add_model(parser)
    _add_build(parser)
    checking.add_arguments(parser)
    _add_json(parser)

    parser = commands.add_parser(
        "prepare", help="write the ONNX model that expresses a precision in its graph, to build it elsewhere"
    )
    _add_precision(parser, "int8")
    add = parser.add_argument
    add("-o", "--output", required=True, metavar="OUT.onnx", help="the prepared model")
    version = "version at the head of the cache, such as 8601 or 101601: TensorRT ignores a cache of another"
    cache = "also a calibration cache, for TensorRT 10's implicit INT8"
    _add_texts(parser, {"--cache OUT.cache": cache, "--cache-version DIGITS": version})
    _add_json(parser)
    _add_model(parser)

    parser = commands.add_parser("report", help="build variants of a model and write them as one HTML file")
    add = parser.add_argument
    add("-o", "--output", default="report.html", help="the file (default: %(default)s)")
    add("--json", dest="whole", metavar="R.json", help="also all of it, for programs")
    _add_texts(parser, {"--markdown R.md": "also as Markdown, for an issue or a pull request"})
    precisions = f"{_PRECISIONS}; repeat it for several variants (default: fp32)"
    _add_texts(parser, {"--precision NAME": precisions}, action="append", default=[])
    sizes = "symbols of which a variant has other sizes than the model; repeat it for a variant each"
    _add_texts(parser, {"--sizes NAME=N,NAME=N": sizes}, action="append", default=[])
    _add_model(parser)
    _add_build(parser)

    _add_sweep(
        commands.add_parser(
            "sweep", help="run many variants of many models, and put the results into a store"
        )
    )
    _add_store(commands.add_parser("store", help="list, remove, clean up or export the results of sweeps"))

    _add_json(commands.add_parser("backends", help="what is available here, and why not"))

    parser = commands.add_parser(
        "compilers", help="keep several releases of TensorRT-RTX side by side: list, add or remove one"
    )
    parser.set_defaults(action="list", json=False)
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    _add_json(actions.add_parser("list", help="which are here, where, how large, and whether they work"))
    adding = actions.add_parser("add", help="install one into a folder of its own, with pip")
    removing = actions.add_parser("remove", help="take an added one away")
    for parser in (adding, removing):
        parser.add_argument("version", help="such as 1.5, or 1.5.0.114 in full")
        _add_json(parser)
    adding.add_argument(
        "--from",
        dest="source",
        metavar="FOLDER",
        help="where its wheels lie, for a machine without a network",
    )

    parser = commands.add_parser(
        "doctor", help="try everything that this machine can do, and say what to report"
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--backend", help="only this one (default: all)")
    what.add_argument(
        "--workshop",
        action="store_true",
        help="instead, whether this laptop has what the notebooks need: packages, memory, disk, ports; no network",
    )
    _add_json(parser)

    parser = commands.add_parser(
        "wheelhouse", help="put rtlab and all it needs into a folder, to install from without a network"
    )
    parser.add_argument("folder", help="where the wheels go, in the versions that are installed here")
    _add_json(parser)

    parser = commands.add_parser("completion", help="print a script that completes commands in a shell")
    parser.add_argument("shell", choices=("bash", "zsh", "tcsh"))
    for name, work in works.items():
        commands.choices[name].set_defaults(work=work)
    return main_parser


def _add_sweep(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("grid", help="a .toml or .json with models and choices: see docs/sweeps.md")
    add(
        "--store",
        required=True,
        metavar="FOLDER",
        help="where results go; what is there is not computed again",
    )
    add("--resume", action="store_true", help="go on where it was, and try again what failed")
    add("--scheduler", metavar="tcp://HOST:PORT", help="a Dask cluster, whose workers see the folder too")
    add(
        "--workers", type=int, default=1, metavar="N", help="processes of this machine (default: %(default)s)"
    )
    add("--retries", type=int, default=0, metavar="N", help="how often a variant that fails is tried again")
    seconds = "what measuring each variant may take; 0 only builds (default: all that can be measured)"
    add("--measure", type=float, default=math.inf, metavar="SECONDS", help=seconds)
    _add_json(parser)


def _add_store(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("ls", help="a line for each result and failure")
    removing = actions.add_parser("rm", help="remove results and failures")
    cleaning = actions.add_parser("gc", help="remove what killed workers left, and what is damaged")
    exporting = actions.add_parser("export", help="write the table, or the study of a model, as one file")
    for action in (listing, removing, cleaning, exporting):
        action.add_argument("store", metavar="FOLDER", help="the store")
    _add_json(listing)
    removing.add_argument(
        "keys", nargs="+", metavar="KEY", help="the beginning of a key, or the name of a model"
    )
    exporting.add_argument(
        "output", metavar="FILE", help=".csv, .json or .parquet: the table; .rtlab: a study"
    )
    exporting.add_argument("--of", metavar="NAME", help="the model of the study")


def _add_precision(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument("--precision", default=default, help=f"{_PRECISIONS} (default: %(default)s)")


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def _add_texts(parser: argparse.ArgumentParser, options: Mapping[str, str], **fields: Any) -> None:
    """Options with a value: flag and name of the value, and what it is; ``fields`` are those of ``add_argument``."""
    for option, words in options.items():
        flag, _, form = option.partition(" ")
        parser.add_argument(flag, metavar=form, help=words, **fields)


def _add_limits(parser: argparse.ArgumentParser, *, builds: int | None = None, seconds: float = 60.0) -> None:
    """What an experiment on a variant that is only built may take, and how its answer is printed."""
    parser.set_defaults(no_run=True, budget=BUDGET_S)
    if builds is not None:
        parser.add_argument(
            "--builds", type=int, default=builds, help="how many parts may be built (default: %(default)s)"
        )
    parser.add_argument(
        "--seconds",
        type=float,
        default=seconds,
        help="how long it may take, without building the whole model (default: %(default)g)",
    )
    _add_json(parser)


def _add_model(parser: argparse.ArgumentParser) -> None:
    """The model, and what a variant of it is made with."""
    add = parser.add_argument
    add("model", help="an ONNX file, or the name of a sample")
    _add_texts(parser, _REPEATED, action="append", default=[])
    add(
        "--calibrator",
        help=f"{', '.join(METHODS)}, or a percentile such as percentile(99.9) (default: auto; minmax for fp8)",
    )
    add("--weights", default="channel", help="one scale per channel or per tensor (default: channel)")
    sparsity = "prune weights to 2:4: all that can be, or those of the nodes that the pattern fits"
    _add_texts(parser, {"--sparsity PATTERN": sparsity}, nargs="?", action="append", const="*", default=[])
    _add_texts(parser, _DATA)
    add("--target", help="cpu, gpu, npu, sm86, sm89, sm120, ... (default: the backend's)")


def _add_build(parser: argparse.ArgumentParser) -> None:
    """What variants are scored by, what builds them, and how long that may take."""
    add = parser.add_argument
    labels = "a label for each sample of --data, which is scored on then beside fp32"
    _add_texts(parser, {"--labels L.npy": labels})
    add("--metric", help="top-1, top-5, psnr, mse, cosine or perplexity (default: top-1)")
    _add_compiler(parser)
    add("--no-run", action="store_true", help="only build: no times, no errors")
    add(
        "--budget",
        type=Seconds,
        default=BUDGET_S,
        metavar="SECONDS",
        help="what all of it may take, loading and building included: what is measured by then is shown; 0 only "
        "builds, inf measures on all samples (default: %(default)g for measuring each variant, however long it builds)",
    )


def _add_compiler(parser: argparse.ArgumentParser) -> None:
    """What builds."""
    parser.add_argument(
        "--backend",
        help="tensorrt-rtx, onnxruntime, onnxruntime:openvino, ...: see rtlab backends (default: the best available)",
    )
    release = "a release that is kept here, such as 1.5: see rtlab compilers (default: the environment's own)"
    _add_texts(parser, {"--compiler RELEASE": release})
