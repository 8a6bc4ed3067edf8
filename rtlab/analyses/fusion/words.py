"""What became of a node, in words."""

from __future__ import annotations

from rtlab.analyses.cards.card import BoxBuilder
from rtlab.analyses.cards.card import format_box_name as named
from rtlab.analyses.fusion import map_nodes
from rtlab.core.facts import VariantResult
from rtlab.core.model import Model
from rtlab.relation.mapping import map_to_places
from rtlab.relation.roles import QUANTIZING_OPS


def explain(facts: VariantResult, model: Model, node: str) -> str:
    """Which layers a node became and how we know, or why it has none."""
    mapping = map_nodes(facts)
    model_node = model.node(node)
    layers = mapping.layers(model_node.id)
    if not layers:
        missing = mapping.why(model_node.id)
        return f'"{model_node.title}" has no layer ({missing.reason}): {missing.text}' if missing else ""
    lines = []
    cards = BoxBuilder(facts, model, map_to_places(mapping, model))
    by_id = {layer.id: layer for layer in facts.engine.layers}
    for pair in sorted(mapping.pairs, key=lambda p: p.role != "work"):
        if pair.node == model_node.id:
            layer = by_id[pair.layer]
            # A Q or DQ that the model brought along is overhead of what reads it.
            runs = "is quantization" if model_node.op in QUANTIZING_OPS else "runs"
            does = runs if pair.role == "work" else f"has its {pair.role}"
            box = cards.build_box(layer)
            others = [c["title"] for c in box["chips"] if c["node"] != model_node.id]
            shared = f" with {', '.join(others)}" if others else ""
            lines.append(
                f'"{model_node.title}" {does} in layer {layer.index + 1}, "{named(box)}" ("{layer.name}"){shared} '
                f"({pair.evidence}). {pair.note}"
            )
    return "\n".join(lines)
