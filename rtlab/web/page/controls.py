"""What can be chosen in the Explorer: model, precision, calibrator and target, and why something cannot."""

from __future__ import annotations

from collections.abc import Mapping
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
from rtlab.core.model import Model
from rtlab.core.ptq_transform import PtqTransformKind
from rtlab.core.variant import CALIBRATORS, Calibrator, Precision, Variant, has_effect
from rtlab.documents.commands import Choice, Pin
from rtlab.documents.contract import Controls, Dimension, OpenInput, Option

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
#: Why nothing can be chosen for an engine whose model nobody gave.
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
    )


def choice_to_variant(choice_fields: Mapping[str, Any]) -> Variant:
    """The variant that a choice asks for.

    Raises:
        VariantError: the combination cannot exist.
    """
    pins = {p["pattern"]: p["precision"] for p in choice_fields.get("pins") or ()}
    return Variant.of(
        {"*": choice_fields["precision"], **pins},
        calibrator=choice_fields["calibrator"] or None,
        target=choice_fields["target"] or None,
        weights=choice_fields.get("weights") or "channel",
        sparsity=tuple(choice_fields.get("sparsity") or ()),
        treatments=tuple(choice_fields.get("treatments") or ()),
        backend=get_additional_backend(choice_fields.get("backend")),
    )


def build_controls(model: Model, choice_fields: Mapping[str, Any]) -> Controls:
    """What the top row offers beside a ``Choice``."""
    usual = usual_builder(model)
    capabilities = backends.get(usual).capabilities()
    models = dict.fromkeys([model.name, *samples.names()])
    available_precisions = set(capabilities.precisions)
    target = next(
        (t for t in capabilities.targets if str(t) == choice_fields.get("target")), capabilities.targets[0]
    )
    # A saved notebook may hold a choice that no longer exists; building it says so, offering must not fail.
    precision = next((p for p in Precision if p.value == choice_fields.get("precision")), Precision.FP32)
    needs_calibrator = any(p.needs_calibrator for p in (precision, *_pinned_precisions(choice_fields)))
    no_model_reason = "" if model.nodes else NO_MODEL
    return Controls(
        models=[_option(n) for n in models],
        precisions=[
            _option(
                str(p),
                why=no_model_reason
                or target.refusal(p)
                or ("" if p in available_precisions else f'Backend "{usual}" has no {p}'),
            )
            for p in Precision
        ],
        calibrators=[
            _option(
                c, why=no_model_reason or ("" if needs_calibrator else f"{precision} needs no calibrator")
            )
            for c in dict.fromkeys(
                [*map(str, _CALIBRATORS), *filter(None, [str(choice_fields.get("calibrator") or "")])]
            )
        ],
        targets=[
            _option(str(t), t.title, why=no_model_reason or t.refusal(precision) or "")
            for t in capabilities.targets
        ],
        compilers=[
            _option(c.backend, f"{capabilities.maker.title} {c.version}", why=no_model_reason)
            for c in compilers.list_releases(usual)
        ]
        + [
            _option(n, backends.get(n).capabilities().maker.title, why=no_model_reason)
            for n in list_predicting_backends()
        ],
        treatments=[_treatment(kind, precision, choice_fields, no_model_reason) for kind in TREATMENTS],
        sizes=_sizes(model),
    )


def _sizes(model: Model) -> list[OpenInput]:
    """The inputs with open dimensions; none where only the batch is open, which is 1 unless somebody wants another."""
    declared_shapes = {n: model.values[n].shape or () for n in model.inputs}
    if not any(not isinstance(d, int) for dims in declared_shapes.values() for d in dims[1:]):
        return []
    return [
        OpenInput(
            name=name,
            dimensions=[
                Dimension(size=size, open=not isinstance(d, int), symbol=partial_shapes.get_symbol(d))
                for size, d in zip(model.proposed[name], dims, strict=True)
            ],
            lacking=bool(partial_shapes.list_unsized_axes(name, dims, model.shapes)),
        )
        for name, dims in declared_shapes.items()
        if any(not isinstance(d, int) for d in dims)
    ]


def _treatment(
    kind: PtqTransformKind, precision: Precision, choice_fields: Mapping[str, Any], no_model_reason: str
) -> Option:
    """A treatment, unless nothing of what is chosen is rounded so that it could help."""
    coarse = kind in {"reconstruct", "correct"} and has_effect("equalize", (precision,))
    reason = "has no weights in 8 or 4 bits" if coarse else "needs no transform"
    why = "" if has_effect(kind, (precision, *_pinned_precisions(choice_fields))) else f"{precision} {reason}"
    return _option(kind, why=no_model_reason or why)


def _option(id_: str, label: str = "", *, why: str = "") -> Option:
    """Something to choose, unless there is a reason ``why`` not."""
    return Option(id=id_, label=label or id_, reason=why)


def _pinned_precisions(choice_fields: Mapping[str, Any]) -> list[Precision]:
    return [
        p for pin in choice_fields.get("pins") or () for p in Precision if p.value == pin.get("precision")
    ]
