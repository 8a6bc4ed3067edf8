"""What can be chosen in the Explorer: model, precision, calibrator and target, and why something cannot."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rtlab import backends, samples
from rtlab.backends import compilers
from rtlab.backends.selection import (
    default_target,
    get_additional_backend,
    list_predicting_backends,
    list_recorded_releases,
    usual_builder,
)
from rtlab.core import partial_shapes
from rtlab.core.calibrators import METHODS
from rtlab.core.model import Model
from rtlab.core.ptq_transform import PtqTransformKind
from rtlab.core.value import shape_text
from rtlab.core.variant import (
    CALIBRATORS,
    Calibrator,
    Precision,
    Variant,
    format_size,
    has_effect,
    parse_size,
)
from rtlab.documents.commands import Choice, Pin
from rtlab.documents.contract import Controls, OpenSize, Option

#: Models of the current folder that the menu lists.
_MOST_LOCAL = 12
#: What can be picked from the list; any other parameter can be typed.
_CALIBRATORS = (*CALIBRATORS, Calibrator.of("percentile(99.9)"), Calibrator.of("percentile(99.999)"))
#: What each treatment does, and what it costs.
TREATMENTS: Mapping[PtqTransformKind, str] = {
    "equalize": (
        "Gives channels that neighbouring layers write and read one range, so that one scale suits all. The model "
        "computes the same; takes a moment to build, and no time to run."
    ),
    "smooth": (
        "Moves uneven channels of activations into the weights behind them (SmoothQuant). The model computes the same; "
        "takes a pass over the samples, and no time to run."
    ),
    "reconstruct": (
        "Rounds weights together, so that what a layer writes stays (GPTQ). Takes a pass over 256 samples and tens "
        "of inferences of these, and no time to run."
    ),
    "correct": (
        "Takes the mean error of rounding off biases. Takes a pass over 256 samples, and no time to run."
    ),
}
#: How an engine of one's own model comes to a machine for which a compiler has no wheel.
RECORDING = (
    "TensorRT-RTX has wheels for x86-64 Linux and Windows only. For an engine of a model of your own run rtlab inspect "
    "MODEL --save build.json on such a machine, and drop the file here."
)
#: Why nothing can be chosen for an engine without its model.
NO_MODEL = 'No ONNX model was given: drop one here, or read the engine with model="model.onnx"'


def default_variant(model: Model) -> Variant:
    """What is chosen at first: fp32 for a GPU that the best builder compiles for."""
    return Variant.of("fp32", target=default_target(usual_builder(model)))


def describe_builder(model: Model) -> str:
    """What a reader must know of the builder here, and behind it what to do; empty where it builds for GPUs."""
    name = usual_builder(model)
    usual = backends.get(name).capabilities()
    title = usual.maker.title
    if not any(t.sm for t in usual.targets):
        return f"No TensorRT builder here\n{title}'s optimized graph stands in for the engine. {RECORDING}"
    if releases := list_recorded_releases(name, model):
        return (
            f"Recorded builds\nThey were recorded with {title} {releases[0]}: each precision for each card, and what "
            f"the notebooks build. {RECORDING}"
        )
    return ""


def build_choice(model: Model, variant: Variant) -> Choice:
    """A variant as the top row shows it."""
    return Choice(
        model=model.name,
        precision=str(variant.precision),
        calibrator=str(variant.calibrator or ""),
        target=str(variant.target),
        backend=variant.backend or usual_builder(model),
        pins=[Pin(pattern=pattern, precision=str(p)) for pattern, p in variant.pins],
        weights=variant.weights,
        sparsity=list(variant.sparsity),
        treatments=[str(t) for t in variant.treatments],
        sizes=[format_size(s) for s in variant.sizes],
    )


def choice_to_variant(choice_fields: Mapping[str, Any]) -> Variant:
    """The variant of a choice; ``VariantError`` where the combination cannot exist."""
    pins = {p["pattern"]: p["precision"] for p in choice_fields.get("pins") or ()}
    return Variant.of(
        {"*": choice_fields["precision"], **pins},
        calibrator=choice_fields["calibrator"] or None,
        target=choice_fields["target"] or None,
        weights=choice_fields.get("weights") or "channel",
        sparsity=tuple(choice_fields.get("sparsity") or ()),
        treatments=tuple(choice_fields.get("treatments") or ()),
        sizes=dict(map(parse_size, choice_fields.get("sizes") or ())),
        backend=get_additional_backend(choice_fields.get("backend")),
    )


def build_controls(model: Model, choice_fields: Mapping[str, Any]) -> Controls:
    """What the top row offers beside a ``Choice``."""
    usual = usual_builder(model)
    capabilities = backends.get(usual).capabilities()
    models = dict.fromkeys([model.name, *_list_local_models(model), *samples.names()])
    target = next(
        (t for t in capabilities.targets if str(t) == choice_fields.get("target")), capabilities.targets[0]
    )
    # A saved notebook may hold a choice that no longer exists; building it says so, offering must not fail.
    precision = next((p for p in Precision if p.value == choice_fields.get("precision")), Precision.FP32)
    needs_calibrator = any(p.needs_calibrator for p in (precision, *_pinned_precisions(choice_fields)))
    no_model_reason = "" if model.nodes else NO_MODEL
    no_calibrator_reason = "" if needs_calibrator else f"{precision} needs no calibrator"

    def offer(id_: str, label: str = "", why: str | None = "") -> Option:
        return Option(id=id_, label=label or id_, reason=no_model_reason or why or "")

    def refuse(p: Precision) -> str:
        return target.refusal(p) or ("" if p in capabilities.precisions else f'Backend "{usual}" has no {p}')

    calibrators = dict.fromkeys([*map(str, _CALIBRATORS), str(choice_fields.get("calibrator") or "")])
    predicting = {n: backends.get(n).capabilities().maker.title for n in list_predicting_backends()}
    releases = {c.backend: f"{capabilities.maker.title} {c.version}" for c in compilers.list_releases(usual)}
    return Controls(
        models=[Option(id=n, label=n, reason="") for n in models],
        precisions=[offer(str(p), why=refuse(p)) for p in Precision],
        calibrators=[offer(c, _describe_calibrator(c), no_calibrator_reason) for c in calibrators if c],
        targets=[offer(str(t), t.title, t.refusal(precision)) for t in capabilities.targets],
        compilers=[offer(name, title) for name, title in {**releases, **predicting}.items()],
        treatments=[
            offer(kind, why=_refuse_treatment(kind, precision, choice_fields)) for kind in TREATMENTS
        ],
        sizes=_sizes(model),
    )


def _describe_calibrator(name: str) -> str:
    method = METHODS.get(name.partition("(")[0])
    return f"{name} · {method.summary}" if method else name


def _list_local_models(model: Model) -> list[str]:
    """The names of the first models in the current folder, but for the one that is open."""
    try:
        paths = sorted(p for p in Path.cwd().iterdir() if p.suffix == ".onnx" and p != model.origin)
    except OSError:
        return []
    return [p.name for p in paths[:_MOST_LOCAL]]


def _sizes(model: Model) -> list[OpenSize]:
    """The sizes that the inputs leave open; none where only the batch is open, which is 1 by default."""
    declared = {n: dims or () for n, dims in model.declared_shapes.items()}
    if all(isinstance(d, int) for dims in declared.values() for d in dims[1:]):
        return []
    sizes = partial_shapes.collect_symbols(declared, model.proposed)
    sizes |= {f"{n}[{axis}]": size for n, shape in model.proposed.items() for axis, size in enumerate(shape)}
    past = partial_shapes.list_past_sizes(declared)
    missing = partial_shapes.list_missing_sizes(declared, model.sizes_by_name, model.proposed)
    lacking = {
        i: i in missing or i.rpartition("[")[0] in missing for i in partial_shapes.list_open_sizes(declared)
    }
    return [
        OpenSize(
            id=id_,
            size=None if lacking[id_] and not model.proposal.fits else sizes.get(id_, 1),
            least=int(id_ not in past),
            inputs=[f"{name} {shape_text(declared[name])}" for name in inputs],
            lacking=lacking[id_],
        )
        for id_, inputs in partial_shapes.list_open_sizes(declared).items()
    ]


def _refuse_treatment(kind: PtqTransformKind, precision: Precision, choice_fields: Mapping[str, Any]) -> str:
    """Why a treatment cannot be chosen: nothing of what is chosen is rounded so that it could help."""
    if has_effect(kind, (precision, *_pinned_precisions(choice_fields))):
        return ""
    coarse = kind in {"reconstruct", "correct"} and has_effect("equalize", (precision,))
    return f"{precision} {'has no weights in 8 or 4 bits' if coarse else 'needs no transform'}"


def _pinned_precisions(choice_fields: Mapping[str, Any]) -> list[Precision]:
    return [
        p for pin in choice_fields.get("pins") or () for p in Precision if p.value == pin.get("precision")
    ]
