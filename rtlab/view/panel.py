"""What the analyses in ``view.panels`` share: what they are asked, and how an answer is put together."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from rtlab.errors import VariantError
from rtlab.view.contract import Column, Fact, Link, Option, Origin, Panel, PanelName, Setting

if TYPE_CHECKING:
    from rtlab.core.facts import Facts
    from rtlab.core.model import Model
    from rtlab.questions.snapshot import Snapshot


@dataclasses.dataclass(frozen=True, eq=False)
class Scene:
    """What a panel is asked about: a variant of a study, beside which other one, with which settings of its own."""

    study: Snapshot
    result: Facts
    baseline: Facts | None = None
    settings: Mapping[str, str] = dataclasses.field(default_factory=dict)
    asked: str = ""

    @property
    def model(self) -> Model:
        """The source model."""
        return self.study.model

    def number(self, key: str, default: int) -> int:
        """A setting that is a whole number.

        Raises:
            VariantError: it is none.
        """
        text = self.settings.get(key) or str(default)
        try:
            return int(text)
        except ValueError:
            raise VariantError(
                f'Cannot use {key} "{text}": it is no whole number. Write one, such as 8.'
            ) from None


def panel(scene: Scene, name: PanelName, title: str, lead: str, **parts: Any) -> Panel:
    """An answer; ``parts`` are fields of ``Panel``, those that are not given are empty."""
    empty: dict[str, Any] = {
        "settings": [], "work": [], "facts": [], "figures": [], "columns": [], "rows": [], "links": {}, "notes": [],
        "problem": "",
    }  # fmt: skip
    given = {
        "name": name,
        "asked": scene.asked,
        "variant": scene.result.name,
        "title": title,
        "lead": lead,
        **empty,
        **parts,
    }
    return cast("Panel", given)


def fact(key: str, value: str, origin: Origin | None = None, note: str = "") -> Fact:
    """One number, ready to show; without an origin it is a count."""
    return Fact(key=key, value=value, origin=origin or "", note=note)


def column(
    title: str, unit: str = "", origin: Origin | None = None, *, numeric: bool | None = None
) -> Column:
    """One column; one that has a unit or an origin is numeric."""
    return Column(
        title=title,
        unit=unit,
        numeric=bool(unit or origin) if numeric is None else numeric,
        origin=origin or "",
    )


def link(nodes: Iterable[str] = (), layers: Iterable[str] = (), others: Iterable[str] = ()) -> Link:
    """What a point or a row stands for: places of nodes, ids of layers, ids of layers of the other variant."""
    return Link(nodes=list(nodes), layers=list(layers), others=list(others))


def stops(key: str, label: str, values: Iterable[int | str], value: int | str) -> Setting:
    """A slider over given values, and over the one that it stands at."""
    listed = list(values)
    if value not in listed:
        listed = sorted([*listed, value], key=int)
    options = [Option(id=str(v), label=str(v), enabled=True, reason="") for v in listed]
    return Setting(key=key, label=label, kind="range", value=str(value), options=options, hint="")


def choices(key: str, label: str, options: Mapping[str, str], value: str) -> Setting:
    """A list to choose from: labels by value."""
    listed = [Option(id=v, label=text, enabled=True, reason="") for v, text in options.items()]
    return Setting(key=key, label=label, kind="select", value=value, options=listed, hint="")


def field(key: str, label: str, value: str, hint: str) -> Setting:
    """Something to write."""
    return Setting(key=key, label=label, kind="text", value=value, options=[], hint=hint)
