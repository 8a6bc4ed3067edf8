"""What a question with a panel is asked about, and how its answer is put together."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from rtlab.documents.contract import Panel, PanelName
from rtlab.errors import VariantError

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


def panel(scene: Scene, name: str, title: str, lead: str, **parts: Any) -> Panel:
    """An answer; ``parts`` are fields of ``Panel``, those that are not given are empty."""
    empty: dict[str, Any] = {
        "settings": [], "work": [], "facts": [], "figures": [], "columns": [], "rows": [], "links": {}, "notes": [],
        "problem": "",
    }  # fmt: skip
    given = {
        "name": PanelName(name),
        "variant": scene.result.name,
        "title": title,
        "lead": lead,
        **empty,
        **parts,
    }
    return cast("Panel", given)
