"""What the TensorRT backends share. The functions that touch a binding run in the child process only."""

from __future__ import annotations

import dataclasses
import importlib
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
    the number of streams to the builder.
    """

    binding: str
    model: bytes
    sm: int | None
    label: str
    aux_streams: int | None = None
    keep_plan: bool = False


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
    keep = {v.name for v in (*proto.graph.input, *proto.graph.output)}
    labels: dict[str, str] = {}
    renamed: dict[str, str] = {}

    def value(name: str) -> str:
        if not name or name in keep or _PLAIN.fullmatch(name):
            return name
        return renamed.setdefault(name, f"value_{len(renamed)}")

    graphs: list[Any] = [proto.graph, *proto.functions]
    while graphs:
        graph = graphs.pop()
        for node in graph.node:
            if not _PLAIN.fullmatch(node.name):
                labels[f"node_{len(labels)}"] = node.name
                node.name = f"node_{len(labels) - 1}"
            for names in (node.input, node.output):
                for i, name in enumerate(names):
                    if (new := value(name)) != name:
                        names[i] = new
            for attribute in node.attribute:
                graphs.extend(attribute.graphs)
                if attribute.HasField("g"):
                    graphs.append(attribute.g)
        for field in ("initializer", "value_info", "sparse_initializer"):
            for item in getattr(graph, field, ()):
                if hasattr(item, "name") and item.name in renamed:
                    item.name = renamed[item.name]
        for field in ("input", "output"):
            items = getattr(graph, field)
            for i, item in enumerate(items):
                name = item if isinstance(item, str) else item.name
                if name in renamed:
                    if isinstance(item, str):
                        items[i] = renamed[name]
                    else:
                        item.name = renamed[name]
    return labels


def compile_plan(order: Order, report: Any) -> Built:
    """Parse and build with the binding; runs in the child process.

    Raises:
        BuildError: the parser or the builder refuses; all unsupported operators are named.
    """
    trt = importlib.import_module(order.binding)
    lines: list[str] = []

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

    report.phase("Reading the model")
    logger, monitor = Logger(), Monitor()
    builder = trt.Builder(logger)
    network = builder.create_network(_strong(trt))
    parser = trt.OnnxParser(network, logger)
    if not parser.parse(order.model) or network.num_layers == 0:
        raise BuildError(_refusal(parser, order, trt, logger), details=_errors(parser))
    report.phase("Compiling")
    config = builder.create_builder_config()
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    config.progress_monitor = monitor
    if order.aux_streams is not None:
        config.max_aux_streams = order.aux_streams
    if order.sm is not None:
        config.num_compute_capabilities = 1
        config.set_compute_capability(getattr(trt.ComputeCapability, f"SM{order.sm}"), 0)
    started = time.perf_counter()
    plan = builder.build_serialized_network(network, config)
    seconds = time.perf_counter() - started
    if plan is None:
        said = [m for m in lines if "Error" in m or "error" in m][-5:]
        raise BuildError(
            f"{order.label}: the builder refused the network. {said[-1] if said else 'It gave no reason.'} "
            'Choose another precision or target, or backend="onnxruntime".',
            details="\n".join(lines[-200:]),
        )
    return Built("\n".join(lines) + "\n", bytes(plan) if order.keep_plan else None, seconds, trt.__version__)


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
