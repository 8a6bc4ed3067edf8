"""Variants that differ from a given one in a single choice, so that what it does can be seen."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rtlab import backends
from rtlab.backends import compilers
from rtlab.backends.selection import builder_for
from rtlab.core.facts import VariantResult
from rtlab.core.options import BuildOptions
from rtlab.core.variant import Precision, Rewrite, Target, Variant
from rtlab.errors import RtlabError, VariantError

#: What can be varied, and how a button says it.
VARIATIONS: Mapping[str, str] = {
    "targets": "Other GPUs",
    "streams": "One stream and four",
    "levels": "Optimization levels 0, 3 and 5",
    "tf32": "TF32 on and off",
    "sparsity": "2:4 sparse weights",
    "compilers": "Other releases of the compiler",
    "pairs": "Without its own Q/DQ",
}
#: What only some models have, so that nothing is said of it elsewhere.
_RARE = frozenset({"pairs"})
#: The option whose value is a text: a combination of the compiler's own settings (TensorRT 11.1 and later).
_ROUTE = "build_route"
#: What to do where nothing would differ, for a choice that somebody can widen.
_WIDEN = {"compilers": "No other release is here: run rtlab compilers add 1.6, for example"}


def variations(
    name: str, variant: Variant, what: str, targets: Iterable[Target], qdq_nodes: Sequence[str] = ()
) -> dict[str, dict[str, Any]]:
    """The arguments of ``Study.add`` by the names of the new variants.

    Args:
        name: Of the variant that they derive from.
        variant: The variant itself.
        what: A key of ``VARIATIONS``, or an option of TensorRT's builder with its value, such as ``max_aux_streams=2``
            or ``build_route=...``, of which ``rtlab compilers list --json`` tells those that a release offers.
        targets: All that the builder compiles for.
        qdq_nodes: The nodes that the model itself quantizes.

    Raises:
        VariantError: there is no such choice, or nothing of it would differ from the variant.
    """
    changes = _list_changes(variant, what, targets, qdq_nodes)
    if not changes:
        raise VariantError(
            f'Cannot vary "{what}" of "{name}": nothing would differ. '
            f"{_WIDEN.get(what, 'Choose among ' + ', '.join(VARIATIONS))}."
        )
    same = get_add_arguments(variant)
    return {f"{name} {label}": {**same, **change} for label, change in changes.items()}


def list_variations(
    name: str, variant: Variant, facts: VariantResult | None, qdq_nodes: Sequence[str] = ()
) -> dict[str, tuple[str, str]]:
    """What can be varied of a variant: by choice the label of a button, and why it cannot be had.

    ``qdq_nodes`` are the nodes that the model itself quantizes.
    """
    kinds = {w: label for w, label in VARIATIONS.items() if qdq_nodes or w not in _RARE}
    if facts is not None and facts.recorded:
        return {w: (label, "It was read from files of another machine") for w, label in kinds.items()}
    buttons = {}
    for what, label in kinds.items():
        try:
            able = backends.get(variant.backend or builder_for(None, variant.target)).capabilities()
            variations(name, variant, what, able.targets, qdq_nodes)
            has_options = what not in {"streams", "levels"} or able.options
            reason = "" if has_options else "Only a TensorRT builder has options"
        except RtlabError:
            reason = _WIDEN.get(what, "Nothing would differ from this variant")
        buttons[what] = (label, reason)
    return buttons


def _list_changes(
    variant: Variant, what: str, targets: Iterable[Target], qdq_nodes: Sequence[str]
) -> dict[str, dict[str, Any]]:
    if what == "pairs":
        forms = [Rewrite("release", node) for node in qdq_nodes]
        is_released = not forms or {*forms} <= {*variant.rewrites}
        return {} if is_released else {"without Q/DQ": {"precision": Precision.FP32, "rewrites": forms}}
    if what == "targets":
        return {str(t): {"target": t} for t in targets if t != variant.target}
    if what == "streams":
        counts = {"1 stream": 0, "4 streams": 3}
        return {label: {"options": _with(variant, "max_aux_streams", n)} for label, n in counts.items()}
    if what == "levels":
        option = "builder_optimization_level"
        return {f"level {level}": {"options": _with(variant, option, level)} for level in (0, 3, 5)}
    if what == "tf32":
        others = {Precision.FP32: Precision.TF32, Precision.TF32: Precision.FP32}
        other = others.get(variant.precision)
        return {str(other): {"precision": {"*": other, **dict(variant.pins)}}} if other else {}
    if what == "sparsity":
        return {} if variant.sparsity else {"2:4": {"sparsity": True}}
    if what == "compilers":
        mine = variant.backend or builder_for(None, variant.target)
        return {c.title: {"backend": c.backend} for c in compilers.list_releases(mine) if c.backend != mine}
    option, _, value = str(what).partition("=")
    # Other digits than these are digits to Python too, and not all of them are numbers.
    number = value.isascii() and value.isdigit()
    if not option or not (number or (option == _ROUTE and value)):
        raise VariantError(
            f'Cannot vary "{what}": it is neither one of {", ".join(VARIATIONS)} nor an option with a number. '
            "Write max_aux_streams=2, for example."
        )
    return {what: {"options": _with(variant, option, int(value) if number else value)}}


def get_add_arguments(variant: Variant) -> dict[str, Any]:
    """The arguments of ``Study.add`` that plan a variant again."""
    return {
        "precision": {"*": variant.precision, **dict(variant.pins)},
        "calibrator": variant.calibrator,
        "target": variant.target,
        "backend": variant.backend,
        "weights": variant.weights,
        "sparsity": list(variant.sparsity),
        "options": variant.options,
        "rewrites": list(variant.rewrites),
        "calibrators": dict(variant.calibrators),
        "treatments": list(variant.treatments),
        "sizes": dict(variant.sizes),
    }


def _with(variant: Variant, option: str, value: int | str) -> BuildOptions:
    options = variant.options or BuildOptions()
    return dataclasses.replace(options, config=tuple(sorted({**dict(options.config), option: value}.items())))
