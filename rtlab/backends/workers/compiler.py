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
from rtlab.backends.workers import calibrator, refusals, settings, trt_callbacks
from rtlab.backends.workers.job_spec import BuildSpec
from rtlab.core.phrases import pluralize
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
class BuildOutput:
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
    graphs = _collect_graphs(proto)
    io_names = {v.name for v in (*proto.graph.input, *proto.graph.output)}
    names = {n for g in graphs for node in g.node for n in (*node.input, *node.output) if n}
    fresh = (f"value_{i}" for i in itertools.count())
    new_names = {
        n: next(f for f in fresh if f not in names) for n in sorted(names - io_names) if not is_plain(n)
    }
    labels: dict[str, str] = {}
    ids = {node.name for g in graphs for node in g.node}
    safe = (f"node_{i}" for i in itertools.count())
    for graph in graphs:
        for node in graph.node:
            if not is_plain(node.name):
                label = next(s for s in safe if s not in ids)
                labels[label], node.name = node.name, label
            _rename(node.input, new_names)
            _rename(node.output, new_names)
        for field in ("input", "output", "initializer", "value_info"):
            _rename(getattr(graph, field, ()), new_names)
    return OriginalNames(labels, {fresh: name for name, fresh in new_names.items()})


def is_plain(name: str) -> bool:
    """Whether a name survives the listing as it is."""
    return _PLAIN.fullmatch(name) is not None


def _collect_graphs(proto: Any) -> list[Any]:
    """The main graph, every function and every body."""
    graphs: list[Any] = []
    todo: list[Any] = [proto.graph, *proto.functions]
    while todo:
        graphs.append(graph := todo.pop())
        for node in graph.node:
            for attribute in node.attribute:
                todo += [*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])]
    return graphs


def _rename(items: Any, new_names: dict[str, str]) -> None:
    """Rename in a list of names, or of things that have one."""
    for i, item in enumerate(items):
        if isinstance(item, str):
            if item in new_names:
                items[i] = new_names[item]
        elif item.name in new_names:
            item.name = new_names[item.name]


def probe_binding(binding: str, report: Any) -> tuple[str, tuple[str, ...] | None]:
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


def compile_plan(spec: BuildSpec, report: Any) -> BuildOutput:
    """Parse and build with the binding; runs in the child process.

    Raises:
        BuildError: the parser or the builder refuses; all unsupported operators are named.
        VariantError: an option does not exist in this binding, or its value is refused.
        CalibrationError: TensorRT's calibrator could not read its samples.
    """
    trt = vendor.binding(spec.binding)
    report.phase("Reading the model")
    # Every line is on disk before the next one comes.
    with Path(spec.log or os.devnull).open(
        "w", encoding="utf-8", errors="replace", newline="\n", buffering=1
    ) as log:
        return _compile(trt, spec, report, log)


def _compile(trt: Any, spec: BuildSpec, report: Any, log: Any) -> BuildOutput:
    warnings: list[str] = []
    quiet = {trt.ILogger.VERBOSE, trt.ILogger.INFO}

    def on_message(severity: Any, message: str) -> None:
        if not log.closed:  # the binding's destructors still log
            log.write(message + "\n")
        if severity not in quiet:
            warnings.append(message)

    logger = trt_callbacks.message_logger(trt, on_message)
    builder = trt.Builder(logger)
    network = builder.create_network(_get_network_flags(trt, spec))
    parser = trt.OnnxParser(network, logger)
    if not parser.parse_from_file(spec.model) or network.num_layers == 0:
        text = "\n".join(str(parser.get_error(i)) for i in range(parser.num_errors))
        raise BuildError(
            _describe_refusal(parser, spec, trt, logger),
            details=text if spec.on_gpu else refusals.drop_driver_lines(text),
        )
    if spec.debug and hasattr(network, "mark_unfused_tensors_as_debug_tensors"):
        network.mark_unfused_tensors_as_debug_tensors()
    report.phase("Compiling")
    config = builder.create_builder_config()
    config.progress_monitor = trt_callbacks.progress_monitor(trt, report)
    configure(trt, config, spec, warnings)
    settings.add_profiles(builder, network, config, spec, warnings)
    notes = settings.use_timing_cache(config, spec, warnings)
    attached_calibrator = calibrator.attach(trt, builder, config, spec, report)
    start = time.perf_counter()
    plan = builder.build_serialized_network(network, config)
    seconds = time.perf_counter() - start
    cache, cache_notes = calibrator.read_cache(attached_calibrator, spec, done=plan is not None)
    if plan is None:
        causes = [words for line in warnings if (words := refusals.extract_cause(line, gpu=spec.on_gpu))]
        why = causes[-1] if causes else "It gave no reason"
        raise BuildError(
            f"{spec.error_prefix}: the builder refused the network. {why}. Choose "
            f"{'other options, or another' if spec.options.count else 'another'} precision or target, or "
            'backend="onnxruntime".'
        )
    return BuildOutput(
        bytes(plan) if spec.keep_plan else None,
        seconds,
        trt.__version__,
        (*notes, *cache_notes),
        settings.serialize_timing_cache(config, spec),
        cache,
    )


def configure(trt: Any, config: Any, spec: BuildSpec, warnings: list[str] | None = None) -> None:
    """Set a builder's configuration: one target, all details in the listing, the flags of a variant, its options."""
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    if spec.sm is not None and hasattr(config, "set_compute_capability"):
        config.num_compute_capabilities = 1
        config.set_compute_capability(getattr(trt.ComputeCapability, f"SM{spec.sm}"), 0)
    for flag, enabled in ((trt.BuilderFlag.TF32, spec.tf32), (trt.BuilderFlag.SPARSE_WEIGHTS, spec.sparse)):
        # TF32 is on by default, but FP32 means FP32 here.
        (config.set_flag if enabled else config.clear_flag)(flag)
    settings.apply(trt, config, spec, [] if warnings is None else warnings)


def _describe_refusal(parser: Any, spec: BuildSpec, trt: Any, parser_logger: Any) -> str:
    """One sentence that lists every node the parser refuses, not only the first."""
    refused_nodes: dict[str, tuple[str, str]] = {}
    # Parsing ends at the first refusal; asking for support walks the whole graph.
    builder = trt.Builder(parser_logger)
    network = builder.create_network(_get_network_flags(trt, spec))
    survey = trt.OnnxParser(network, parser_logger)
    content = Path(spec.model).read_bytes()
    if hasattr(survey, "supports_model_v2"):  # not in the first releases of TensorRT 10
        survey.supports_model_v2(content, spec.model)
    else:
        survey.supports_model(content, spec.model)
    for source in (parser, survey):
        for i in range(source.num_errors):
            error = source.get_error(i)
            name, op = error.node_name(), error.node_operator()
            if name or op:
                # A failed check of the parser prints the bare condition.
                why = refusals.extract_cause(error.desc(), gpu=spec.on_gpu) or "unsupported"
                refused_nodes.setdefault(name or f"node {error.node()}", (op, why.removeprefix(f"{name}: ")))
    if not refused_nodes and parser.num_errors == 0:
        return (
            f"{spec.error_prefix}: its parser found no layers in the model. "
            "Check that the graph computes something from its inputs."
        )
    advice = 'Replace the operators, or choose backend="onnxruntime".'
    if not refused_nodes:
        errors = [parser.get_error(i).desc() for i in range(parser.num_errors)]
        causes = [words for e in errors if (words := refusals.extract_cause(e, gpu=spec.on_gpu))]
        cause = causes[0] if causes else "It gave no reason"
        return f"{spec.error_prefix}: its parser refuses the model. {cause}. {advice}"
    node_list = "; ".join(f'"{name}" ({op}: {why})' for name, (op, why) in list(refused_nodes.items())[:20])
    more = f" and {len(refused_nodes) - 20} more" if len(refused_nodes) > 20 else ""
    count = pluralize(len(refused_nodes), "node")
    if all(op in QUANTIZING for op, _ in refused_nodes.values()):
        advice = (
            "The model contains this quantization: study.calibration.fix_qdq() gives it in the form that TensorRT "
            'takes, study.findings() says what that changes. Or choose backend="onnxruntime".'
        )
    return f"{spec.error_prefix}: its parser refuses {count}: {node_list}{more}. {advice}"


def _get_network_flags(trt: Any, spec: BuildSpec) -> int:
    """Strong typing is the only mode of current releases; earlier ones must be asked for it, and implicit INT8 not."""
    flags = trt.NetworkDefinitionCreationFlag
    if spec.calibration is not None or not hasattr(flags, "STRONGLY_TYPED"):
        return 0
    return 1 << int(flags.STRONGLY_TYPED)
