"""The child's side of a build: the parser, and the builder with its configuration.

Which attributes, flags and pools exist is asked of the binding itself; what it lacks is refused with what it has.

Polygraphy's loaders (``NetworkFromOnnxPath``, ``CreateConfig``) are not used: one variable of the environment decides
which of the two bindings a process has, none of them sets a compute capability to build for, and of what the parser
refuses they keep the text but not the node (0.53.6).
"""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rtlab.backends import vendor
from rtlab.backends.workers import refusals
from rtlab.core.options import BuildOptions, Shapes
from rtlab.core.phrases import pluralize
from rtlab.errors import BuildError, ReadError, Unavailable, VariantError

if TYPE_CHECKING:
    from rtlab.core.buildlog import Entry

_LOG = logging.getLogger(__name__)
#: Operators of quantization, which ``rtlab.quantize.findings`` can write in another form.
QUANTIZING = frozenset({
    "QuantizeLinear", "DequantizeLinear", "QLinearConv", "QLinearMatMul", "QGemm", "QLinearAdd", "QLinearMul",
    "QLinearConcat", "QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax", "QLinearAveragePool",
    "QLinearGlobalAveragePool", "ConvInteger", "MatMulInteger", "DynamicQuantizeLinear",
})  # fmt: skip
#: What the builder says of a layer that it has no implementation for.
_NO_RUNNER = re.compile(r"(\S+) has no runners that implement it")
#: Kinds of layers that one ONNX operator becomes.
_LAYER_OPS = {"NMS": "NonMaxSuppression", "NON_ZERO": "NonZero"}
# Names that a listing line cannot mistake for one of its own keys.
_PLAIN = re.compile(r"[\w./:+\-() ]{1,200}")
#: Attributes of a configuration that are not the user's, and what to do instead.
_RESERVED_ATTRIBUTES = {
    "flags": "Give flags=[...] and cleared=[...] with names",
    "profiling_verbosity": "Leave it out: rtlab needs DETAILED",
    "progress_monitor": "Leave it out: rtlab shows progress with it",
    "num_compute_capabilities": "Choose target=...",
    "int8_calibrator": "Choose calibrator=..., whose scales stand in the graph",
    "algorithm_selector": "Leave it out: an object cannot be sent to the compiler's process",
    "profile_stream": "Leave it out: an object cannot be sent to the compiler's process",
}
#: What is set by a method instead of an attribute.
_METHOD_SETTINGS = ("preview_features", "tactic_sources")
#: Flags of weakly typed networks.
_WEAK_TYPING_FLAGS = {"FP16", "BF16", "INT8", "FP8", "INT4", "FP4"} | {
    "OBEY_PRECISION_CONSTRAINTS",
    "PREFER_PRECISION_CONSTRAINTS",
}


@dataclasses.dataclass(frozen=True)
class BuildSpec:
    """One build: ``model`` is the path of an ONNX file, which is only read.

    ``binding`` is ``tensorrt_rtx`` or ``tensorrt``, ``product`` its name for people; ``sm`` the compute capability that
    TensorRT-RTX compiles for. ``times``: this compiler times kernels, and so can keep a timing cache. ``tf32`` lets
    products of FP32 be computed in TF32, ``sparse`` lets kernels skip the zeros of 2:4 weights, ``debug`` lets the
    values that fusion leaves be read while the engine runs. ``profiles`` are those of ``options`` with every dynamic
    input, ``timing`` the bytes of a timing cache (None for no cache). ``log`` is the file that the verbose log goes to,
    line by line, so that it outlives a crash.
    """

    binding: str
    model: str
    sm: int | None
    error_prefix: str
    product: str = "TensorRT"
    times: bool = False
    keep_plan: bool = False
    tf32: bool = False
    sparse: bool = False
    debug: bool = False
    options: BuildOptions = dataclasses.field(default_factory=BuildOptions)
    profiles: tuple[Mapping[str, Shapes], ...] = ()
    timing: bytes | None = None
    log: str = ""

    @property
    def on_gpu(self) -> bool:
        """Whether a GPU takes part: one that times kernels, or one that the engine is to run on."""
        return self.times or self.debug


@dataclasses.dataclass(frozen=True)
class BuildOutput:
    """What the child sends back: the serialized engine, the time in seconds, the binding's version.

    ``timing`` are the bytes of the timing cache after the build, empty where there is none.
    """

    plan: bytes | None
    seconds: float
    version: str
    notes: tuple[str, ...] = ()
    timing: bytes = b""


def sanitize(proto: Any) -> dict[str, str]:
    """Give nodes and inner values of a ``ModelProto`` names that survive the listing; returns nodes' original names.

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
    return labels


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
    """Parse and build one request; runs in the child process.

    Raises:
        BuildError: the parser or the builder refuses; all unsupported operators are named.
        VariantError: an option does not exist in this binding, or its value is refused.
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
    levels = {
        trt.ILogger.VERBOSE: logging.DEBUG,
        trt.ILogger.INFO: logging.INFO,
        trt.ILogger.WARNING: logging.WARNING,
    }

    def on_message(severity: Any, message: str) -> None:
        if not log.closed:  # the binding's destructors still log
            log.write(message + "\n")
        level = levels.get(severity, logging.ERROR)
        if level >= logging.WARNING:
            warnings.append(message)
        _LOG.log(level, "%s", message)

    logger = message_logger(trt, on_message)
    builder = trt.Builder(logger)
    network = builder.create_network(_get_network_flags(trt))
    parser = trt.OnnxParser(network, logger)
    if not parser.parse_from_file(spec.model) or network.num_layers == 0:
        text = "\n".join(str(parser.get_error(i)) for i in range(parser.num_errors))
        message, nodes = _describe_refusal(parser, spec, trt, logger)
        details = text if spec.on_gpu else refusals.drop_driver_lines(text)
        raise BuildError(message, details=details, nodes=nodes)
    if spec.debug and hasattr(network, "mark_unfused_tensors_as_debug_tensors"):
        network.mark_unfused_tensors_as_debug_tensors()
    report.phase("Compiling")
    config = builder.create_builder_config()
    config.progress_monitor = _progress_monitor(trt, report)
    configure(trt, config, spec, warnings)
    _add_profiles(builder, network, config, spec, warnings)
    notes = _use_timing_cache(config, spec, warnings)
    start = time.perf_counter()
    plan = builder.build_serialized_network(network, config)
    # No kernel has this attention: let the compiler make it of products and a softmax.
    is_refused = plan is None and any("is_decomposable" in line for line in warnings)
    if is_refused and (count := _decompose_attention(trt, network)):
        subject = pluralize(count, "Attention node is", "Attention nodes are")
        notes += (f"{subject} decomposed, since no kernel has this shape and type (decomposable=True)",)
        start = time.perf_counter()
        plan = builder.build_serialized_network(network, config)
    seconds = time.perf_counter() - start
    if plan is None:
        causes = [words for line in warnings if (words := refusals.extract_cause(line, gpu=spec.on_gpu))]
        refused_layer = _find_layer(network, causes)
        if refused_layer is not None:
            name, op = _get_onnx_node(refused_layer)
            kind = refusals.explain_kind(op or refused_layer.type.name, causes[-1], spec.product)
            raise BuildError(
                f'{spec.error_prefix}: the builder refuses "{name}" ({op or refused_layer.type.name}: {kind}). '
                'Leave it out, or choose backend="onnxruntime".',
                details="\n".join(causes),
                nodes=(name,),
            )
        raise BuildError(
            f"{spec.error_prefix}: the builder refused the network. {causes[-1] if causes else 'It gave no reason'}. "
            f"Choose {'other options, or another' if spec.options.count else 'another'} precision or target, or "
            'backend="onnxruntime".'
        )
    timing_cache = config.get_timing_cache() if spec.times and spec.timing is not None else None
    timing = b"" if timing_cache is None else bytes(timing_cache.serialize())
    return BuildOutput(bytes(plan) if spec.keep_plan else None, seconds, trt.__version__, notes, timing)


def configure(trt: Any, config: Any, spec: BuildSpec, warnings: list[str]) -> None:
    """Set a builder's configuration: one target, all details in the listing, the flags of a variant, its options."""
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    if spec.sm is not None and hasattr(config, "set_compute_capability"):
        config.num_compute_capabilities = 1
        config.set_compute_capability(getattr(trt.ComputeCapability, f"SM{spec.sm}"), 0)
    for flag, enabled in ((trt.BuilderFlag.TF32, spec.tf32), (trt.BuilderFlag.SPARSE_WEIGHTS, spec.sparse)):
        # TF32 is on by default, but FP32 means FP32 here.
        (config.set_flag if enabled else config.clear_flag)(flag)
    _apply_options(trt, config, spec, warnings)


def _decompose_attention(trt: Any, network: Any) -> int:
    """Let every attention become other layers where no kernel has it; returns how many there are."""
    count = 0
    for i in range(network.num_layers):
        layer = network.get_layer(i)
        if layer.type == getattr(trt.LayerType, "ATTENTION_INPUT", None):
            layer.__class__ = trt.IAttentionInputLayer
            layer.attention.decomposable = True
            count += 1
    return count


def _find_layer(network: Any, causes: list[str]) -> Any:
    """The layer of which the builder says that nothing runs it; None where it says no such thing."""
    names = {m[1] for cause in causes if (m := _NO_RUNNER.search(cause))}
    layers = (network.get_layer(i) for i in range(network.num_layers))
    return next((layer for layer in layers if layer.name in names), None)


def _get_onnx_node(layer: Any) -> tuple[str, str]:
    """The node that a layer was parsed from, and its operator where the layer is a kind of its own."""
    match = re.search(r"\[ONNX Layer: (.*?)\]", getattr(layer, "metadata", ""))
    return match[1] if match else layer.name, _LAYER_OPS.get(layer.type.name, "")


def _describe_refusal(
    parser: Any, spec: BuildSpec, trt: Any, parser_logger: Any
) -> tuple[str, tuple[str, ...]]:
    """One sentence that lists every node the parser refuses, not only the first; and the names of them."""
    refused_nodes: dict[str, tuple[str, str]] = {}
    # Parsing ends at the first refusal; asking for support walks the whole graph.
    builder = trt.Builder(parser_logger)
    network = builder.create_network(_get_network_flags(trt))
    survey = trt.OnnxParser(network, parser_logger)
    if hasattr(survey, "supports_model_v2"):  # not in the first releases of TensorRT 10
        survey.supports_model_v2(Path(spec.model).read_bytes(), spec.model)
    else:
        survey.supports_model(Path(spec.model).read_bytes(), spec.model)
    for source in (parser, survey):
        for i in range(source.num_errors):
            error = source.get_error(i)
            name, op = error.node_name(), error.node_operator()
            if name or op:
                # A failed check of the parser prints the bare condition.
                why = refusals.extract_cause(error.desc(), gpu=spec.on_gpu) or "unsupported"
                why = refusals.explain_kind(op, why.removeprefix(f"{name}: "), spec.product)
                refused_nodes.setdefault(name or f"node {error.node()}", (op, why))
    if not refused_nodes and parser.num_errors == 0:
        return (
            f"{spec.error_prefix}: its parser found no layers in the model. "
            "Check that the graph computes something from its inputs."
        ), ()
    advice = 'Replace the operators, or choose backend="onnxruntime".'
    if not refused_nodes:
        errors = [parser.get_error(i).desc() for i in range(parser.num_errors)]
        causes = [words for e in errors if (words := refusals.extract_cause(e, gpu=spec.on_gpu))]
        cause = causes[0] if causes else "It gave no reason"
        return f"{spec.error_prefix}: its parser refuses the model. {cause}. {advice}", ()
    node_list = "; ".join(f'"{name}" ({op}: {why})' for name, (op, why) in list(refused_nodes.items())[:20])
    more = f" and {len(refused_nodes) - 20} more" if len(refused_nodes) > 20 else ""
    count = pluralize(len(refused_nodes), "node")
    if all(op in QUANTIZING for op, _ in refused_nodes.values()):
        advice = (
            "The model contains this quantization: study.findings() says what is wrong with it. Or choose "
            'backend="onnxruntime".'
        )
    return f"{spec.error_prefix}: its parser refuses {count}: {node_list}{more}. {advice}", tuple(
        refused_nodes
    )


def _get_network_flags(trt: Any) -> int:
    """Strong typing, which is the only mode of current releases, and a flag of earlier ones."""
    flags = trt.NetworkDefinitionCreationFlag
    return 1 << int(flags.STRONGLY_TYPED) if hasattr(flags, "STRONGLY_TYPED") else 0


# --- options ---------------------------------------------------------------------------------------------------------


def _apply_options(trt: Any, config: Any, spec: BuildSpec, warnings: list[str]) -> None:
    """Set attributes, flags and memory pools of an ``IBuilderConfig``.

    ``warnings`` are errors and warnings that the builder logged so far; they grow while it is used.

    Raises:
        VariantError: a name is unknown to this binding, or it does not take the value.
    """
    options, compiler = spec.options, f"{spec.error_prefix}: {spec.product} {trt.__version__}"
    for name, value in options.config:
        if name in _RESERVED_ATTRIBUTES:
            raise VariantError(
                f'{spec.error_prefix}: "{name}" is not for the user to set. {_RESERVED_ATTRIBUTES[name]}.'
            )
        if name in _METHOD_SETTINGS:
            members = (value,) if isinstance(value, str) else tuple(value)
            _set_by_method(trt, config, name, members, compiler)
        else:
            _set_attribute(config, name, value, compiler, warnings)
    flags = trt.BuilderFlag.__members__
    for name in (*options.flags, *options.cleared):
        if name in _WEAK_TYPING_FLAGS:
            raise VariantError(
                f'{spec.error_prefix}: builder flag "{name}" belongs to weakly typed networks, and the types of this '
                'one stand in its graph. Choose the precision instead, such as precision="fp16".'
            )
        _check_known(name, flags, "builder flag", compiler)
        (config.set_flag if name in options.flags else config.clear_flag)(flags[name])
    pools = trt.MemoryPoolType.__members__
    for name, size in options.pools:
        _check_known(name, pools, "memory pool", compiler)
        before = len(warnings)
        config.set_memory_pool_limit(pools[name], size)
        if (actual_size := config.get_memory_pool_limit(pools[name])) != size or warnings[before:]:
            raise VariantError(
                f'{compiler} does not limit memory pool "{name}" to {size} bytes and keeps {actual_size}. '
                f"{_format_reason(warnings[before:])}Choose another limit, or leave it out."
            )


def _set_attribute(config: Any, name: str, value: Any, compiler: str, warnings: list[str]) -> None:
    """Set one attribute of the configuration, and see that it was taken."""
    attributes = [n for n in dir(type(config)) if getattr(getattr(type(config), n), "fset", None) is not None]
    settable = [n for n in (*attributes, *_METHOD_SETTINGS) if n not in _RESERVED_ATTRIBUTES]
    _check_known(name, settable, "attribute of IBuilderConfig", compiler)
    default, before = getattr(config, name), len(warnings)
    setting = list(value) if isinstance(value, tuple) else value
    if (members := getattr(type(default), "__members__", None)) is not None:
        _check_known(str(value), members, f"value of {name}", compiler)
        setting = members[value]
    try:
        setattr(config, name, setting)
    except (AttributeError, TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise VariantError(
            f"{compiler} does not take {name}={value!r}, which is a {type(value).__name__}. "
            f"Give a value like the default, {default!r}.",
            details=str(error),
        ) from error
    if (actual_setting := getattr(config, name)) != setting:
        raise VariantError(
            f"{compiler} does not take {name}={value!r}: it keeps {actual_setting!r}. "
            f"{_format_reason(warnings[before:])}Choose a value within its bounds, or leave it out."
        )


def _set_by_method(trt: Any, config: Any, name: str, members: tuple[str, ...], compiler: str) -> None:
    enum_members = (trt.PreviewFeature if name == "preview_features" else trt.TacticSource).__members__
    for member in members:
        _check_known(member, enum_members, f"member of {name}", compiler)
    if name == "preview_features":
        for member in members:
            config.set_preview_feature(enum_members[member], True)  # noqa: FBT003 - the binding's signature
    elif not config.set_tactic_sources(sum(1 << int(enum_members[member]) for member in set(members))):
        raise VariantError(
            f"{compiler} does not take tactic_sources={list(members)}. Choose fewer, or leave them out."
        )


def _check_known(name: str, choices: Iterable[str], noun: str, compiler: str) -> None:
    """Raise ``VariantError`` with what is close, and all that exists, unless a name is among the choices."""
    by_case = {n.casefold(): n for n in choices}
    if name not in by_case.values():
        close = [by_case[c] for c in difflib.get_close_matches(str(name).casefold(), by_case, n=3)]
        hint = f"Did you mean {' or '.join(close)}? " if close else ""
        raise VariantError(
            f'{compiler} has no {noun} "{name}". {hint}Choose one of {", ".join(by_case.values())}.'
        )


def _add_profiles(builder: Any, network: Any, config: Any, spec: BuildSpec, warnings: list[str]) -> None:
    """Add the optimization profiles; a shape tensor gets values instead of sizes.

    Raises:
        BuildError: an input needs a profile and has none, or TensorRT refuses one.
    """
    tensors = [network.get_input(i) for i in range(network.num_inputs)]
    required_inputs = [t.name for t in tensors if t.is_shape_tensor or -1 in tuple(t.shape)]
    if not spec.profiles and not required_inputs:
        return
    for number, ranges in enumerate(spec.profiles or ({},)):
        if missing := [name for name in required_inputs if name not in ranges]:
            raise BuildError(
                f'{spec.error_prefix}: optimization profile {number} lacks input "{missing[0]}", whose values or sizes '
                f'are not fixed. Give profiles=[{{"{missing[0]}": (least, usual, greatest)}}]; a shape tensor has its '
                "values there."
            )
        profile = builder.create_optimization_profile()
        before = len(warnings)
        try:
            for tensor in tensors:
                if tensor.name not in ranges:
                    continue
                set_range = profile.set_shape_input if tensor.is_shape_tensor else profile.set_shape
                set_range(tensor.name, *ranges[tensor.name])
            accepted = config.add_optimization_profile(profile) >= 0
        except (TypeError, ValueError, RuntimeError) as error:
            warnings.append(str(error))
            accepted = False
        if not accepted:
            raise BuildError(
                f"{spec.error_prefix}: optimization profile {number} is refused. {_format_reason(warnings[before:])}"
                "Give sizes that the graph allows."
            )


def _use_timing_cache(config: Any, spec: BuildSpec, warnings: list[str]) -> tuple[str, ...]:
    """Give the builder the timing cache of earlier builds; one that does not fit is replaced, with a note."""
    if spec.timing is None:
        return ()
    if not spec.times:
        return (f"no timing cache: {spec.product} times nothing while it builds, and ignores one",)
    before = len(warnings)
    cache = config.create_timing_cache(spec.timing)
    # A cache of another GPU or version is refused here; a damaged one may come back empty, with a warning.
    accepted = cache is not None and config.set_timing_cache(cache, ignore_mismatch=False)
    if accepted and not (spec.timing and warnings[before:]):
        return ()
    why = " ".join(warnings[before:])
    config.set_timing_cache(config.create_timing_cache(b""), ignore_mismatch=False)
    return (f"timing cache replaced: it is damaged, or of another version or GPU. {why}".rstrip(),)


def _format_reason(warnings: list[str]) -> str:
    return f"It says: {warnings[0]} " if warnings else ""


def message_logger(trt: Any, on_message: Callable[[Any, str], object]) -> Any:
    """A logger of the binding that passes severity and text of every message to ``on_message``.

    It is called very often. An exception in it would be swallowed by the binding.
    """

    class Logger(trt.ILogger):  # type: ignore[misc,name-defined,unused-ignore] # base of the untyped binding
        log = staticmethod(on_message)

        def __init__(self) -> None:
            trt.ILogger.__init__(self)

    return Logger()


def _progress_monitor(trt: Any, report: Any) -> Any:
    """A progress monitor that reports nested phases: the outermost counts, the others name what is going on."""

    class Monitor(trt.IProgressMonitor):  # type: ignore[misc,name-defined,unused-ignore]
        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)

        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:  # noqa: ARG002
            report.phase(phase_name, num_steps)

        def step_complete(self, phase_name: str, step: int) -> bool:  # noqa: ARG002
            report.advance()
            return True

        def phase_finish(self, phase_name: str) -> None:
            pass

    return Monitor()


#: What a build must be told, so that its timing cache can be read and edited.
FLAG = "EDITABLE_TIMING_CACHE"
#: What a cache answers for a key that it does not have.
NOTHING = 2**64 - 1


@dataclasses.dataclass(frozen=True)
class CacheEdit:
    """A timing cache of TensorRT, the keys to look up, and the entries that are put in first.

    A cache can be read and edited when it was written by a build with ``flags=["EDITABLE_TIMING_CACHE"]`` and
    ``timing_cache=...``. A build with both, and an edited file, takes the tactic of the file: so a tactic is forced.
    Only the verbose log of the build that timed an operator has its key and its tactics; the cache itself lists none.
    """

    binding: str
    content: bytes
    error_prefix: str
    keys: tuple[str, ...]
    entries: tuple[Entry, ...] = ()


def edit_cache(spec: CacheEdit, report: Any) -> tuple[tuple[Entry, ...], bytes]:
    """Put entries into a cache, and return those of the keys with the cache's bytes; runs in the child process."""
    # Loads NumPy, which a child that builds would wait for as long as for all else that it imports.
    from rtlab.core.buildlog import Entry

    report.phase("Reading the timing cache")
    trt = vendor.binding(spec.binding)
    if not hasattr(trt, "TimingCacheValue"):
        raise VariantError(
            f"{spec.error_prefix}: this compiler has no editable timing cache. Install TensorRT 10.10 or later."
        )
    messages: list[str] = []
    logger = message_logger(trt, lambda _, message: messages.append(message))
    builder = trt.Builder(logger)
    config = builder.create_builder_config()
    config.set_flag(trt.BuilderFlag.EDITABLE_TIMING_CACHE)
    cache = config.create_timing_cache(spec.content)
    if cache is None or not config.set_timing_cache(cache, ignore_mismatch=False):
        raise ReadError(
            f"{spec.error_prefix}: it is damaged, or of another version or GPU. Build once more with "
            f'flags=["{FLAG}"], timing_cache=... here.',
            details="\n".join(messages),
        )
    if not cache.queryKeys():
        raise ReadError(
            f'{spec.error_prefix}: it has no entries that can be edited. Build with flags=["{FLAG}"] and this file, '
            "after it was deleted."
        )
    for entry in spec.entries:
        key = trt.TimingCacheKey.parse(entry.key)
        if cache.query(key).tacticHash == NOTHING:
            raise VariantError(
                f"{spec.error_prefix}: it has no entry of key {entry.key}, so it is not of the build whose log tells "
                "it. Build once more with this file, after it was deleted."
            )
        if not cache.update(key, trt.TimingCacheValue(entry.tactic, entry.milliseconds)):
            raise VariantError(
                f"{spec.error_prefix}: TensorRT refuses tactic {entry.id}. Choose another of the log."
            )
    entries = []
    for text in spec.keys:
        value = cache.query(trt.TimingCacheKey.parse(text))
        if value.tacticHash != NOTHING:
            entries.append(Entry(text, int(value.tacticHash), float(value.timingMSec)))
    return tuple(entries), bytes(cache.serialize())
