"""What files tell of two nodes where no compiler can be asked: which steps they are, and what may keep them apart."""

from __future__ import annotations

from rtlab.core.facts import Facts
from rtlab.core.phrases import quoted
from rtlab.experiments.why import changes, cutting
from rtlab.experiments.why.oracle import inputs_of
from rtlab.questions.fusion import related
from rtlab.questions.why import CAUSES, Outcome, Verdict
from rtlab.questions.why.missed import steps_of, together


def reported(facts: Facts, first: str, second: str, why: str) -> Verdict:
    """A verdict from what is known of an engine alone.

    What stands between two nodes, or reads what is between them, is named; that it is what keeps them apart was tried
    by nobody.

    Args:
        facts: The variant.
        first: The node that writes.
        second: The one that reads it.
        why: Why its compiler is not asked, and what to do.
    """
    model, engine = facts.prepared.model, facts.engine
    relation = related(engine, model, model)

    def told(verdict: Outcome, text: str, nodes: tuple[str, ...] = ()) -> Verdict:
        return Verdict(
            first,
            second,
            verdict,
            nodes=nodes,
            text=text,
            compiler=engine.title,
            shapes=inputs_of(model),
            basis="reported",
        )

    shared = together(relation, first, second)
    one, other = steps_of(relation, first), steps_of(relation, second)
    if shared:
        layer = engine.layer(next(i for i in one if i in other))
        return told("fused", f'Layer {layer.index + 1}, "{layer.name}", does the work of both.')
    if shared is None:
        lost = first if not one else second
        missing = relation.why(lost)
        text = missing.text if missing is not None else "Its layers only serve it."
        return told("unknown", f'No layer is known to do the work of "{lost}". {text}')
    names = [quoted(engine.layer(i).name for i in steps) for steps in (one, other)]
    text = f"{names[0]} does the work of the first and {names[1]} that of the second."
    way = cutting.paths(model, first, second) or ()
    ends = frozenset(model.outputs)
    after = [n for i in other for n in relation.run(i)]
    before = [n for i in one for n in relation.run(i)]
    suspects = [
        *changes.between(model, first, second, way, ends),
        *changes.operands(model, first, second),
        *changes.rivals_behind(model, (first, second), after),
        *changes.rivals_before(model, first, before),
    ]
    nodes = tuple(dict.fromkeys(n for c in suspects for n in c.nodes))
    if suspects:
        causes = dict.fromkeys(c.cause for c in suspects)
        text += " What may keep them apart, none of it tried: " + "; ".join(
            f"{CAUSES[cause]} ({quoted(dict.fromkeys(n for c in suspects if c.cause == cause for n in c.nodes))})"
            for cause in causes
        )
        text += "."
    else:
        text += " Nothing in the graph stands between them: the compiler itself may not do it."
    return told("unknown", f"{text} The compiler is not asked: {why}", nodes)
