"""What is worth changing in an engine, each with its evidence, its measured cost and a remedy.

The rules cover the linters of NVIDIA's trex, which TensorRT 11.1 removed. Times join layers by id, which readers match
by name, and types are the tensors' own, so that BF16 is not shown as FP32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rtlab.analyses.findings.rules import engine_level, fusions, kernels, movement
from rtlab.analyses.findings.rules.reading import Reading
from rtlab.analyses.roofline.estimate import Roofline
from rtlab.analyses.timing.times import Timing
from rtlab.core.buildlog import BuildLog
from rtlab.core.engine import Engine
from rtlab.core.finding import Finding
from rtlab.core.model import Model
from rtlab.relation.dataflow import Dataflow
from rtlab.relation.mapping import Mapping

#: The gravest first: this decides among findings whose cost is equal or unknown.
RULES: tuple[Callable[[Reading], Iterator[Finding]], ...] = (
    kernels.off_tensor_cores,
    fusions.lone_pairs,
    fusions.lone_epilogues,
    movement.wide_layers,
    kernels.quantized_in_float_out,
    kernels.few_rows,
    movement.back_and_forth,
    movement.copies,
    movement.moves,
    kernels.dense_though_sparse,
    kernels.unaligned,
    engine_level.tiny_layers,
    engine_level.idle,
)

#: Those that need no more than names and times.
_BY_NAMES = (engine_level.tiny_layers, engine_level.idle)


def rank_findings(
    engine: Engine,
    mapping: Mapping | None = None,
    model: Model | None = None,
    timing: Timing | None = None,
    log: BuildLog | None = None,
    *,
    flow: Dataflow | None = None,
    estimate: Roofline | None = None,
) -> tuple[Finding, ...]:
    """Findings by the measured time at stake, the longest first, then by gravity.

    Where the file holds names of layers only, the first finding says so, and rules that need more are skipped.

    Args:
        engine: Engines of other compilers than TensorRT's family have no findings.
        mapping: Relates its layers to nodes: findings name nodes, and unknown layers are classified by theirs.
        model: The source model of that mapping.
        timing: Times of this very engine; without them, rules about time are silent.
        log: The build log of this engine, for sparsity.
        flow: Of the engine; computed where it is None.
        estimate: What its layers take on its GPU, which is the cost where no times are.
    """
    reading = Reading(engine, mapping, model, timing, log, flow=flow, estimate=estimate)
    if not engine.maker.tensorrt or not engine.layers:
        return ()
    bare = tuple(engine_level.names_only(reading))
    rule_findings = [f for rule in (_BY_NAMES if bare else RULES) for f in rule(reading)]
    return bare + tuple(
        sorted(rule_findings, key=lambda f: -1.0 if f.microseconds is None else f.microseconds, reverse=True)
    )
