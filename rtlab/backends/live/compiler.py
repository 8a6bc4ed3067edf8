"""What the TensorRT backends share. The functions that touch a binding run in the child process only.

Polygraphy's loaders (``NetworkFromOnnxPath``, ``CreateConfig``) are not used: one variable of the environment decides
which of the two bindings a process has, none of them sets a compute capability to build for, and of what the parser
refuses they keep the text but not the node (0.53.6).
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rtlab.backends import vendor
from rtlab.backends.live import calibrator, listening, refusals, settings
from rtlab.backends.live.order import BuildOrder
from rtlab.core.phrases import many
from rtlab.errors import BuildError, Unavailable

#: Operators of quantization, which ``rtlab.quantize.findings`` can write in another form.
QUANTIZING = frozenset({
    "QuantizeLinear", "DequantizeLinear", "QLinearConv", "QLinearMatMul", "QGemm", "QLinearAdd", "QLinearMul",
    "QLinearConcat", "QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax", "QLinearAveragePool",
    "QLinearGlobalAveragePool", "ConvInteger", "MatMulInteger", "DynamicQuantizeLinear",
})  # fmt: skip
# Names that a listing line cannot mistake for one of its own keys.
_PLAIN = re.compile(r"[\w./:+\-() ]{1,200}")


@dataclasses.dataclass(frozen=True)
class Built:
    """What the child sends back: the serialized engine, the time in seconds, the binding's version.

    ``timing`` are the bytes of the timing cache after the build, ``cache`` the text of the calibration cache that
    TensorRT's calibrator used or made, both empty where there is none.
    """

    plan: bytes | None
    seconds: float
    version: str
    notes: tuple[str, ...] = ()
    timing: bytes = b""
    cache: str = ""


@dataclasses.dataclass(frozen=True)
class OriginalNames:
    """The way back from names that a builder was given: of nodes, and of values inside the graph."""

    nodes: Mapping[str, str]
    values: Mapping[str, str]


def sanitize(proto: Any) -> OriginalNames:
    """Give nodes and inner values of a ``ModelProto`` names that survive the listing; returns the way back.

    Node ids are unique already. Graph inputs and outputs stay as they are, because the engine's user needs them.
    """
    graphs = _graphs(proto)
    taken = {v.name for v in (*proto.graph.input, *proto.graph.output)}
    names = {n for g in graphs for node in g.node for n in (*node.input, *node.output) if n}
    fresh = (f"value_{i}" for i in itertools.count())
    renamed = {n: next(f for f in fresh if f not in names) for n in sorted(names - taken) if not plain(n)}
    labels: dict[str, str] = {}
    ids = {node.name for g in graphs for node in g.node}
    safe = (f"node_{i}" for i in itertools.count())
    for graph in graphs:
        for node in graph.node:
            if not plain(node.name):
                label = next(s for s in safe if s not in ids)
                labels[label], node.name = node.name, label
            _rename(node.input, renamed)
            _rename(node.output, renamed)
        for field in ("input", "output", "initializer", "value_info"):
            _rename(getattr(graph, field, ()), renamed)
    return OriginalNames(labels, {fresh: name for name, fresh in renamed.items()})


def plain(name: str) -> bool:
    """Whether a name survives the listing as it is."""
    return _PLAIN.fullmatch(name) is not None


def _graphs(proto: Any) -> list[Any]:
    """The main graph, every function and every body."""
    found: list[Any] = []
    todo: list[Any] = [proto.graph, *proto.functions]
    while todo:
        graph = todo.pop()
        found.append(graph)
        for node in graph.node:
            for attribute in node.attribute:
                todo += [*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])]
    return found


def _rename(items: Any, renamed: dict[str, str]) -> None:
    """Rename in a list of names, or of things that have one."""
    for i, item in enumerate(items):
        if isinstance(item, str):
            if item in renamed:
                items[i] = renamed[item]
        elif item.name in renamed:
            item.name = renamed[item.name]


def started(binding: str, report: Any) -> tuple[str, tuple[str, ...] | None]:
    """The version of a binding that can be imported and gives a builder; runs in the child process.

    With it the build routes that it offers, combinations of the compiler's own settings that may also change what is
    fused (TensorRT 11.1 and later: https://docs.nvidia.com/deeplearning/tensorrt/latest/performance/tuning.html); None
    where its builder has no such choice.

    Raises:
        Unavailable: it cannot, in the binding's own words.
    """
    report.phase("Starting the compiler")
    try:
        trt = vendor.binding(binding)
        config = trt.Builder(trt.Logger(trt.ILogger.INTERNAL_ERROR)).create_builder_config()
        routes = getattr(config, "all_build_routes", None)
    except Exception as error:
        raise Unavailable(
            f"Cannot start the compiler: {type(error).__name__}: {error}. Install it again, or choose another release."
        ) from error
    return str(trt.__version__), None if routes is None else tuple(map(str, routes))


def compile_plan(order: BuildOrder, report: Any) -> Built:
    """Parse and build with the binding; runs in the child process.

    Raises:
        BuildError: the parser or the builder refuses; all unsupported operators are named.
        VariantError: an option does not exist in this binding, or its value is refused.
        CalibrationError: TensorRT's calibrator could not read its samples.
    """
    trt = vendor.binding(order.binding)
    report.phase("Reading the model")
    # Every line is on disk before the next one comes.
    with Path(order.log or os.devnull).open(
        "w", encoding="utf-8", errors="replace", newline="\n", buffering=1
    ) as log:
        return _compile(trt, order, report, log)


def _compile(trt: Any, order: BuildOrder, report: Any, log: Any) -> Built:
    loud: list[str] = []
    quiet = {trt.ILogger.VERBOSE, trt.ILogger.INFO}

    def hear(severity: Any, message: str) -> None:
        if not log.closed:  # the binding's destructors still log
            log.write(message + "\n")
        if severity not in quiet:
            loud.append(message)

    logger = listening.message_logger(trt, hear)
    builder = trt.Builder(logger)
    network = builder.create_network(_typing(trt, order))
    parser = trt.OnnxParser(network, logger)
    if not parser.parse_from_file(order.model) or network.num_layers == 0:
        raise BuildError(_refusal(parser, order, trt, logger), details=_told(_errors(parser), order))
    if order.debug and hasattr(network, "mark_unfused_tensors_as_debug_tensors"):
        network.mark_unfused_tensors_as_debug_tensors()
    report.phase("Compiling")
    config = builder.create_builder_config()
    config.progress_monitor = listening.progress_monitor(trt, report)
    configure(trt, config, order, loud)
    settings.add_profiles(builder, network, config, order, loud)
    notes = settings.use_timing_cache(config, order, loud)
    attached = calibrator.attach(trt, builder, config, order, report)
    started = time.perf_counter()
    plan = builder.build_serialized_network(network, config)
    seconds = time.perf_counter() - started
    cache, read = calibrator.outcome(attached, order, done=plan is not None)
    if plan is None:
        said = [words for line in loud if (words := refusals.cause(line, gpu=order.on_gpu))]
        why = said[-1] if said else "It gave no reason"
        raise BuildError(
            f"{order.label}: the builder refused the network. {why}. Choose "
            f"{'other options, or another' if order.options.count else 'another'} precision or target, or "
            'backend="onnxruntime".'
        )
    return Built(
        bytes(plan) if order.keep_plan else None,
        seconds,
        trt.__version__,
        (*notes, *read),
        settings.timing_cache(config, order),
        cache,
    )


def configure(trt: Any, config: Any, order: BuildOrder, loud: list[str] | None = None) -> None:
    """Set a builder's configuration: one target, all details in the listing, the flags of a variant, its options."""
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    if order.sm is not None and hasattr(config, "set_compute_capability"):
        config.num_compute_capabilities = 1
        config.set_compute_capability(getattr(trt.ComputeCapability, f"SM{order.sm}"), 0)
    for flag, wanted in ((trt.BuilderFlag.TF32, order.tf32), (trt.BuilderFlag.SPARSE_WEIGHTS, order.sparse)):
        # TF32 is on by default, but FP32 means FP32 here.
        (config.set_flag if wanted else config.clear_flag)(flag)
    settings.apply(trt, config, order, [] if loud is None else loud)


def _errors(parser: Any) -> str:
    return "\n".join(str(parser.get_error(i)) for i in range(parser.num_errors))


def _refusal(parser: Any, order: BuildOrder, trt: Any, parser_logger: Any) -> str:
    """One sentence that lists every node the parser refuses, not only the first."""
    bad: dict[str, tuple[str, str]] = {}
    # Parsing ends at the first refusal; asking for support walks the whole graph.
    builder = trt.Builder(parser_logger)
    network = builder.create_network(_typing(trt, order))
    survey = trt.OnnxParser(network, parser_logger)
    content = Path(order.model).read_bytes()
    if hasattr(survey, "supports_model_v2"):  # not in the first releases of TensorRT 10
        survey.supports_model_v2(content, order.model)
    else:
        survey.supports_model(content, order.model)
    for source in (parser, survey):
        for i in range(source.num_errors):
            error = source.get_error(i)
            name, op = error.node_name(), error.node_operator()
            if name or op:
                # A failed check of the parser prints the bare condition.
                why = refusals.cause(error.desc(), gpu=order.on_gpu) or "unsupported"
                bad.setdefault(name or f"node {error.node()}", (op, why.removeprefix(f"{name}: ")))
    if not bad and parser.num_errors == 0:
        return (
            f"{order.label}: its parser found no layers in the model. "
            "Check that the graph computes something from its inputs."
        )
    advice = 'Replace the operators, or choose backend="onnxruntime".'
    if not bad:
        told = (
            refusals.cause(parser.get_error(i).desc(), gpu=order.on_gpu) for i in range(parser.num_errors)
        )
        return f"{order.label}: its parser refuses the model. {next(filter(None, told), 'It gave no reason')}. {advice}"
    listed = "; ".join(f'"{name}" ({op}: {why})' for name, (op, why) in list(bad.items())[:20])
    more = f" and {len(bad) - 20} more" if len(bad) > 20 else ""
    count = many(len(bad), "node")
    if all(op in QUANTIZING for op, _ in bad.values()):
        advice = (
            "The model brings this quantization along: study.repaired() gives it in the form that TensorRT takes, "
            'study.findings() says what that changes. Or choose backend="onnxruntime".'
        )
    return f"{order.label}: its parser refuses {count}: {listed}{more}. {advice}"


def _told(text: str, order: BuildOrder) -> str:
    """What the binding printed, for the details of an error."""
    return text if order.on_gpu else refusals.without_driver(text)


def _typing(trt: Any, order: BuildOrder) -> int:
    """Strong typing is the only mode of current releases; earlier ones must be asked for it, and implicit INT8 not."""
    flags = trt.NetworkDefinitionCreationFlag
    if order.calibration is not None or not hasattr(flags, "STRONGLY_TYPED"):
        return 0
    return 1 << int(flags.STRONGLY_TYPED)
