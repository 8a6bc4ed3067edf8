"""What became of a node, in words."""

from __future__ import annotations

from rtlab import questions
from rtlab.core.facts import Facts
from rtlab.core.model import Model
from rtlab.questions.cards.card import Cards
from rtlab.questions.cards.card import name as named
from rtlab.relation.mapping import placed
from rtlab.relation.roles import QUANTIZING_OPS


def explain(facts: Facts, model: Model, node: str) -> str:
    """Which layers a node became and how we know, or why it has none."""
    mapping = questions.fusion.mapping(facts)
    found = model.node(node)
    layers = mapping.layers(found.id)
    if not layers:
        missing = mapping.why(found.id)
        return f'"{found.title}" has no layer ({missing.reason}): {missing.text}' if missing else ""
    lines = []
    cards = Cards(facts, model, placed(mapping, model))
    by_id = {layer.id: layer for layer in facts.engine.layers}
    for pair in sorted(mapping.pairs, key=lambda p: p.role != "work"):
        if pair.node == found.id:
            layer = by_id[pair.layer]
            # A Q or DQ that the model brought along is overhead of what reads it.
            runs = "is quantization" if found.op in QUANTIZING_OPS else "runs"
            does = runs if pair.role == "work" else f"has its {pair.role}"
            box = cards.box(layer)
            others = [c["title"] for c in box["chips"] if c["node"] != found.id]
            shared = f" with {', '.join(others)}" if others else ""
            lines.append(
                f'"{found.title}" {does} in layer {layer.index + 1}, "{named(box)}" ("{layer.name}"){shared} '
                f"({pair.evidence}). {pair.note}"
            )
    return "\n".join(lines)
