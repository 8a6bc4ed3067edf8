"""The product of models and choices: the variants of a sweep."""

from __future__ import annotations

import dataclasses
import itertools
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rtlab import samples
from rtlab.analyses.study_state import StudyState
from rtlab.core.model import Model, load
from rtlab.core.phrases import pluralize, quote_names
from rtlab.core.variant import Variant, format_size
from rtlab.errors import ModelError, Unavailable, VariantError, boundary
from rtlab.quantize.ranges import STRIDE
from rtlab.study.planning import add_variant
from rtlab.study.session import Session
from rtlab.study.state_holder import StateHolder

#: Arguments of ``Study.add`` that a grid varies.
AXES = (
    "precision", "calibrator", "target", "backend", "compiler", "weights", "sparsity", "options", "rewrites",
    "calibrators", "treatments", "sizes",
)  # fmt: skip


@dataclasses.dataclass(frozen=True, eq=False)
class GridVariant:
    """One variant of a grid: its name among those of its model, and the study that it is a variant of."""

    name: str
    variant: Variant
    state: StudyState = dataclasses.field(repr=False)
    stride: int = STRIDE


@dataclasses.dataclass(frozen=True)
class SkippedVariant:
    """A combination that cannot exist, by model and name, and the reason."""

    model: str
    name: str
    reason: str


@dataclasses.dataclass(frozen=True, eq=False)
class Grid:
    """Variants of several models; ``skipped`` has the combinations that cannot exist."""

    variants: tuple[GridVariant, ...]
    skipped: tuple[SkippedVariant, ...] = ()

    def __repr__(self) -> str:
        models = len({id(v.state) for v in self.variants})
        skipped = f", {len(self.skipped)} skipped" if self.skipped else ""
        return f"<Grid {pluralize(models, 'model')}: {pluralize(len(self.variants), 'variant')}{skipped}>"

    def __len__(self) -> int:
        return len(self.variants)

    def __iter__(self) -> Iterator[GridVariant]:
        return iter(self.variants)


@boundary("make the grid")
def grid(models: Any, **choices: Any) -> Grid:
    """The product of models and choices, for ``Store.run``.

    Combinations that cannot exist, such as fp8 on sm75, are in ``skipped`` with their reason. Combinations that come to
    the same, such as two calibrators of fp16, are one variant.

    Args:
        models: One or several of: a model, its path, the name of a sample; or a ``Study`` or a ``Sample``, of which
            data and task go along.
        choices: Arguments of ``Study.add`` by name, each one choice or a list of several: ``precision=["fp16",
            "int8"]``. Of ``treatments`` and ``rewrites`` each of the list is a choice, which may be a tuple.

    Raises:
        VariantError: there is no such choice, or two models have one name.
        ModelError: a model cannot be loaded.

    >>> rtlab.grid(study, precision=["fp16", "fp8"], target=["sm75", "sm89"], backend="classic")
    <Grid 1 model: 3 variants, 1 skipped>
    """
    if unknown := [name for name in choices if name not in AXES]:
        raise VariantError(
            f"Cannot vary {quote_names(unknown)}: a grid varies {quote_names(AXES)}. Choose of these."
        )
    axes = {
        name: [c] if not isinstance(c, list) else c for name, c in {"precision": ["fp32"], **choices}.items()
    }
    is_one = isinstance(models, (str, Path, Model, Session, samples.Sample)) or not isinstance(
        models, Iterable
    )
    sessions = [_make_session(model) for model in ([models] if is_one else models)]
    names = [session.model.name for session in sessions]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise VariantError(
            f"Cannot tell models apart: several are called {quote_names(repeated)}. Name them, "
            'rtlab.load("model.onnx", name="mine").'
        )
    variants: list[GridVariant] = []
    skipped: list[SkippedVariant] = []
    for session in sessions:
        planned, refused = _plan_model(session, axes)
        variants += planned
        skipped += refused
    return Grid(tuple(variants), tuple(skipped))


def _make_session(source: Any) -> Session:
    """The study of a model, with data and task where they came along."""
    if isinstance(source, Session):
        return source
    if isinstance(source, str) and source in samples.names() and not Path(source).exists():
        source = samples.load(source)
    if isinstance(source, samples.Sample):
        return Session(source.model, data=source.calibration, task=source.task)
    if not isinstance(source, (Model, str, Path)):
        raise ModelError(
            f"Cannot make a grid of {source!r}: it is no model. Give a model, its path, a sample or a study."
        )
    return Session(source if isinstance(source, Model) else load(source))


def _plan_model(
    session: Session, axes: Mapping[str, Sequence[Any]]
) -> tuple[list[GridVariant], list[SkippedVariant]]:
    """The variants of one model, and the combinations that cannot exist."""
    # Nothing of the study's own variants goes along.
    state = StudyState(session.model, session.state.data, session.task, session.state.limits)
    holder, stride = StateHolder(state), session.stride
    varied = [name for name, entries in axes.items() if len(entries) > 1 or name == "precision"]
    variants: dict[str, GridVariant] = {}
    names: set[str] = set()
    skipped: list[SkippedVariant] = []
    for values in itertools.product(*axes.values()):
        choice = dict(zip(axes, values, strict=True))
        name = _name_choice(choice, varied)
        try:
            variant = add_variant(holder, name, **choice)
        except (VariantError, Unavailable, ModelError) as error:
            skipped.append(SkippedVariant(session.model.name, name, str(error)))
            continue
        # A state with all of them would be copied for each.
        holder.update(operator.methodcaller("without_variant", name))
        if variant.calibrator is None:
            name = _name_choice({**choice, "calibrator": None}, varied)
        if variant.id not in variants:
            unique_name = name if name not in names else variant.id
            names.add(unique_name)
            variants[variant.id] = GridVariant(unique_name, variant, state, stride)
    return list(variants.values()), skipped


def _name_choice(choice: Mapping[str, Any], varied: Sequence[str]) -> str:
    """What tells a variant from the others of its model: ``int8 mse sm86``."""
    return " ".join(filter(None, (_format_choice(choice.get(axis)) for axis in varied)))


def _format_choice(value: Any) -> str:
    """A choice in a variant's name; empty for the default."""
    if value is None or value == ():
        return ""
    if isinstance(value, Mapping):
        return ",".join(f"{k}={v}" for k, v in value.items())
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def describe_choices(variant: Variant) -> dict[str, str]:
    """The choices of a variant in words, by the names of ``AXES``; empty for the default."""
    pins = ",".join(f"{pattern}={precision}" for pattern, precision in variant.pins)
    choices = {name: _format_choice(getattr(variant, name)) for name in AXES if hasattr(variant, name)}
    return {
        **choices,
        "precision": ",".join(filter(None, (str(variant.precision), pins))),
        "sizes": ", ".join(map(format_size, variant.sizes)),
    }
