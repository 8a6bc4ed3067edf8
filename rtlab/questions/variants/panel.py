"""All variants of a study side by side: targets, precisions, options, and what each of them changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rtlab import questions
from rtlab.documents.contract import Column, Figure, Panel, Row, Work
from rtlab.documents.figure import MAIN, OTHER, axis, figure
from rtlab.documents.numbers import counted, number, storage_unit
from rtlab.documents.panel import button, column, fact, link
from rtlab.questions.scene import Question, Scene
from rtlab.questions.titles import titles
from rtlab.questions.variants.variations import offered

if TYPE_CHECKING:
    from rtlab.core.facts import Facts

_LEAD = (
    "One choice at a time: build the same model for another GPU, with other options or sparse weights, and see what "
    "became of its layers."
)


def variants(scene: Scene) -> Panel:
    """One row per variant that is built, and buttons that build those which differ in one choice."""
    results = list(scene.study.facts.values())
    here = scene.result
    kept = storage_unit(max((r.engine.totals.get("activation") or 0 for r in results), default=0))
    weights = storage_unit(max((r.engine.totals.get("weights") or 0 for r in results), default=0))
    called, kinds = titles(scene.study), _kinds(results)
    rows = [_row(r, (called[r.name], called[here.name]), kinds, kept[1], weights[1]) for r in results]
    facts = [fact("Variants", str(len(results))), fact("Engine shown", here.engine.title)]
    if here.variant.options is not None:
        facts.append(fact("Options", str(here.variant.options)))
    return VARIANTS.panel(
        scene,
        work=_works(scene),
        facts=facts,
        figures=[_figure(results, [called[r.name] for r in results], called[here.name], *kept)]
        if len(results) > 1
        else [],
        columns=_columns(kinds, kept[0], weights[0]),
        rows=rows,
        links={r.name: link(layers=[]) for r in results},
        notes=_notes(results),
    )


def _works(scene: Scene) -> list[Work]:
    return [
        button("rebuild", label, reason, what=what)
        for what, (label, reason) in offered(scene.result.name, scene.result.variant, scene.result).items()
    ]


def _kinds(results: list[Facts]) -> list[str]:
    """What steps of these engines are called, the layers of compilers first: they are counted apart."""
    kinds = {counted(r.engine): bool(r.engine.maker.step) for r in results}
    return sorted(sorted(kinds), key=kinds.__getitem__)


def _columns(kinds: list[str], kept: str, weights: str) -> list[Column]:
    return [
        column("Variant"),
        column("Precision"),
        column("Target"),
        column("Options"),
        *(column(f"{kind[:1].upper()}{kind[1:]}s", numeric=True) for kind in kinds),
        column("Streams", numeric=True),
        column("Memory", kept, "reported"),
        column("Weights", weights, "reported"),
        column("Build", "s", "measured"),
        column("Latency", "ms", "measured"),
        column("Measured on"),
        column("Score"),
    ]


def _row(result: Facts, names: tuple[str, str], kinds: list[str], kept: float, weights: float) -> Row:
    title, shown = names
    engine, times = result.engine, questions.timing.of(result)
    sparse = f"2:4 {','.join(result.variant.sparsity)}".replace(" *", "") if result.variant.sparsity else ""
    told = " ".join(filter(None, (str(result.variant.options or ""), sparse)))
    cells: list[str | float | None] = [
        f"▸ {title}" if title == shown else title,
        "mixed" if len(result.variant.precisions) > 1 else str(result.variant.precision),
        engine.place,
        told,
        *(len(engine.layers) - engine.sync if counted(engine) == kind else None for kind in kinds),
        len({y.stream for y in engine.layers}),
        _by(engine.totals.get("activation"), kept),
        _by(engine.totals.get("weights"), weights),
        engine.seconds or None,
        times.total if times else None,
        times.processor if times else "",
        f"{result.score.value:.4g} {result.score.unit}" if result.score else "",
    ]
    return Row(key=result.name, cells=cells, note=engine.title)


def _by(nbytes: int | None, scale: float) -> float | None:
    return nbytes / scale if nbytes else None


def _figure(results: list[Facts], names: list[str], shown: str, unit: str, scale: float) -> Figure:
    """Layers on the left, and where it is told the memory of activations on the right, on one axis of variants.

    Layers are those of the compiled engines; ONNX Runtime's nodes are drawn where there is nothing else.
    """
    kind = _kinds(results)[0]
    layers = [len(r.engine.layers) - r.engine.sync if counted(r.engine) == kind else None for r in results]
    kept = [r.engine.totals.get("activation") for r in results]
    same = {
        "type": "bar",
        "orientation": "h",
        "y": [f"▸ {n}" if n == shown else n for n in names],
        "marker": {"color": [OTHER if n == shown else MAIN for n in names]},
        "textposition": "outside",
        "constraintext": "none",
        "cliponaxis": False,
    }
    bars = {
        **same,
        "x": layers,
        "text": layers,
        "hovertemplate": f"%{{y}}: %{{x}} {kind}s<extra>reported</extra>",
    }
    memory = {
        **same,
        "x": [_by(b, scale) for b in kept],
        "xaxis": "x2",
        "text": [number(_by(b, scale)) if b else "" for b in kept],
        "hovertemplate": f"%{{y}}: %{{text}} {unit} of activations<extra>reported</extra>",
    }
    told = any(kept)
    return figure(
        f"{kind[:1].upper()}{kind[1:]}s and memory of {len(results)} variants",
        [bars, memory] if told else [bars],
        # Room for the numbers beside the longest bars.
        xaxis=axis(
            f"{kind}s, reported",
            domain=[0, 0.48 if told else 1],
            range=[0, 1.18 * max(n for n in layers if n is not None)],
        ),
        xaxis2=axis(
            f"activations, {unit}, reported",
            domain=[0.52, 1],
            range=[0, 1.3 * max(_by(b, scale) or 0 for b in kept) or 1],
        ),
        yaxis=axis(type="category", autorange="reversed", showgrid=False),
    )


def _notes(results: list[Facts]) -> list[str]:
    notes = []
    if len(kinds := _kinds(results)) > 1:
        notes.append(
            f"A {kinds[0]} of a compiled engine may run many nodes, a node of ONNX Runtime's graph is one or few of "
            "them: the two are counted apart, and the figure shows those of compiled engines."
        )
    untold = (r.engine for r in results if r.variant.sparsity and r.engine.maker.tunes == "load")
    notes += dict.fromkeys(
        f"{engine.compiler}'s listing does not tell which kernels use 2:4 sparsity; that is decided on the GPU at load."
        for engine in untold
        if "sparsity" not in engine.maker.reports
    )
    notes += dict.fromkeys(
        f"Times on the CPU are those of {r.measured.compiler}'s kernels, which know neither target nor options of "
        "TensorRT."
        for r in results
        if r.measured and (t := questions.timing.of(r)) and t.processor == "CPU"
    )
    return notes


VARIANTS = Question(
    "variants",
    tab="compare",
    label="Variants",
    title="Variants side by side",
    lead=_LEAD,
    drawn=variants,
)
