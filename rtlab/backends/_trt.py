"""What the TensorRT backends share. The functions that touch a binding run in the child process only."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import re
import time
from typing import Any

from rtlab.errors import BuildError

# Names that a listing line cannot mistake for one of its own keys.
_PLAIN = re.compile(r"[\w./:+\-() ]{1,200}")


@dataclasses.dataclass(frozen=True)
class Order:
    """One build, as the child process gets it.

    ``binding`` is ``tensorrt_rtx`` or ``tensorrt``; ``sm`` the compute capability; ``aux_streams`` None leaves
    the number of streams to the builder. ``tf32`` lets products of FP32 be computed in TF32, ``sparse`` lets
    kernels skip the zeros of 2:4 weights.
    """

    binding: str
    model: bytes
    sm: int | None
    label: str
    aux_streams: int | None = None
    keep_plan: bool = False
    tf32: bool = False
    sparse: bool = False


@dataclasses.dataclass(frozen=True)
class Built:
    """What the child sends back: the log, the serialized engine, the time in seconds, the binding's version."""

    log: str
    plan: bytes | None
    seconds: float
    version: str


def sanitize(proto: Any) -> dict[str, str]:
    """Give nodes and inner values of a ``ModelProto`` names that survive the listing; returns the way back.

    Node ids are unique already. Graph inputs and outputs stay as they are, because the engine's user needs them.
    """
    graphs = _graphs(proto)
    taken = {v.name for v in (*proto.graph.input, *proto.graph.output)}
    names = {n for g in graphs for node in g.node for n in (*node.input, *node.output) if n}
    fresh = (f"value_{i}" for i in itertools.count())
    renamed = {n: next(f for f in fresh if f not in names) for n in sorted(names - taken) if not _plain(n)}
    labels: dict[str, str] = {}
    ids = {node.name for g in graphs for node in g.node}
    safe = (f"node_{i}" for i in itertools.count())
    for graph in graphs:
        for node in graph.node:
            if not _plain(node.name):
                label = next(s for s in safe if s not in ids)
                labels[label], node.name = node.name, label
            _rename(node.input, renamed)
            _rename(node.output, renamed)
        for field in ("input", "output", "initializer", "value_info"):
            _rename(getattr(graph, field, ()), renamed)
    return labels


def _plain(name: str) -> bool:
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


def compile_plan(order: Order, report: Any) -> Built:
    """Parse and build with the binding; runs in the child process.

    Raises:
        BuildError: the parser or the builder refuses; all unsupported operators are named.
    """
    trt = importlib.import_module(order.binding)
    lines: list[str] = []
    report.phase("Reading the model")
    logger, monitor = _listeners(trt, lines, report)
    builder = trt.Builder(logger)
    network = builder.create_network(_strong(trt))
    parser = trt.OnnxParser(network, logger)
    if not parser.parse(order.model) or network.num_layers == 0:
        raise BuildError(_refusal(parser, order, trt, logger), details=_errors(parser))
    report.phase("Compiling")
    config = builder.create_builder_config()
    config.progress_monitor = monitor
    configure(trt, config, order)
    started = time.perf_counter()
    plan = builder.build_serialized_network(network, config)
    seconds = time.perf_counter() - started
    if plan is None:
        said = [m for m in lines if "Error" in m or "error" in m][-1:] or ["It gave no reason."]
        raise BuildError(
            f"{order.label}: the builder refused the network. {said[0]} "
            'Choose another precision or target, or backend="onnxruntime".',
            details="\n".join(lines[-200:]),
        )
    return Built("\n".join(lines) + "\n", bytes(plan) if order.keep_plan else None, seconds, trt.__version__)


def configure(trt: Any, config: Any, order: Order) -> None:
    """Set a builder's configuration: one target, all details in the listing, and the flags that a variant asks for."""
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    if order.aux_streams is not None:
        config.max_aux_streams = order.aux_streams
    if order.sm is not None:
        config.num_compute_capabilities = 1
        config.set_compute_capability(getattr(trt.ComputeCapability, f"SM{order.sm}"), 0)
    for flag, wanted in ((trt.BuilderFlag.TF32, order.tf32), (trt.BuilderFlag.SPARSE_WEIGHTS, order.sparse)):
        # TF32 is on by default, but FP32 means FP32 here.
        (config.set_flag if wanted else config.clear_flag)(flag)


def _listeners(trt: Any, lines: list[str], report: Any) -> tuple[Any, Any]:
    """A logger that keeps every message, and a monitor that passes progress on."""

    class Logger(trt.ILogger):  # type: ignore[misc,name-defined,unused-ignore] # base of the untyped binding
        """Keeps every message. The callback is hot: an append and nothing else."""

        def __init__(self) -> None:
            trt.ILogger.__init__(self)

        def log(self, severity: Any, message: str) -> None:  # noqa: ARG002 - the binding's signature
            lines.append(message)

    class Monitor(trt.IProgressMonitor):  # type: ignore[misc,name-defined,unused-ignore]
        """Translates nested phases; only the outermost counts, the others name what is going on."""

        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)

        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:  # noqa: ARG002
            report.phase(phase_name, num_steps)

        def step_complete(self, phase_name: str, step: int) -> bool:  # noqa: ARG002
            report.advance()
            return True

        def phase_finish(self, phase_name: str) -> None:
            pass

    return Logger(), Monitor()


def _errors(parser: Any) -> str:
    return "\n".join(str(parser.get_error(i)) for i in range(parser.num_errors))


def _refusal(parser: Any, order: Order, trt: Any, parser_logger: Any) -> str:
    """One sentence that lists every node the parser refuses, not only the first."""
    bad: dict[str, str] = {}
    # Parsing ends at the first refusal; asking for support walks the whole graph.
    builder = trt.Builder(parser_logger)
    network = builder.create_network(_strong(trt))
    survey = trt.OnnxParser(network, parser_logger)
    survey.supports_model_v2(order.model)
    for source in (parser, survey):
        for i in range(source.num_errors):
            error = source.get_error(i)
            name, op = error.node_name(), error.node_operator()
            if name or op:
                said = " ".join(error.desc().split())
                # A failed check of the parser prints the bare condition.
                why = "unsupported" if said in {"", "false"} else said
                bad.setdefault(name or f"node {error.node()}", f"{op}: {why}")
    if not bad and parser.num_errors == 0:
        return (
            f"{order.label}: its parser found no layers in the model. "
            "Check that the graph computes something from its inputs."
        )
    listed = "; ".join(f'"{n}" ({why})' for n, why in list(bad.items())[:20])
    more = f" and {len(bad) - 20} more" if len(bad) > 20 else ""
    count = f"{len(bad)} node" + ("s" if len(bad) != 1 else "")
    return (
        f"{order.label}: its parser refuses {count}: {listed or _errors(parser)}{more}. "
        'Replace the operators, or choose backend="onnxruntime".'
    )


def _strong(trt: Any) -> int:
    """Strong typing is the only mode of current releases; earlier ones must be asked for it."""
    flags = trt.NetworkDefinitionCreationFlag
    return 1 << int(flags.STRONGLY_TYPED) if hasattr(flags, "STRONGLY_TYPED") else 0
