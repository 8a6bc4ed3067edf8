"""One variant with every release of its compiler: what each made of it, or in which words it refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated

from rtlab.analyses import difference, roofline
from rtlab.analyses.study_state import StudyState
from rtlab.analyses.titles import get_variant_titles
from rtlab.core.schema import UNSENT, FieldMeta, Origin
from rtlab.documents.results import ResultTable


@dataclasses.dataclass(frozen=True)
class Release:
    """What one release made of a variant; of one that refused there are only its words.

    Sizes are in bytes, ``estimate`` in milliseconds on the GPU that the engine is for, ``seconds`` those of the build.
    ``changed`` counts the groups of nodes whose layers are not those of the first release in the table.
    """

    variant: Annotated[str, FieldMeta("Variant")]
    compiler: Annotated[str, FieldMeta("Compiler")]
    layers: Annotated[int | None, FieldMeta("Layers", origin="reported")] = None
    changed: Annotated[
        int | None, FieldMeta("Changed", note="Groups of nodes with other layers than in the first row.")
    ] = None
    estimate: Annotated[float | None, FieldMeta("Time", "ms", "estimated")] = None
    activation: Annotated[int | None, FieldMeta("Memory", "B", "reported", note="Of activations.")] = None
    weights: Annotated[int | None, FieldMeta("Weights", "B", "reported")] = None
    seconds: Annotated[float | None, FieldMeta("Build", "s", "{self.timed}")] = None
    refused: Annotated[str, FieldMeta("Refused")] = ""
    timed: Annotated[Origin, UNSENT] = "measured"


@dataclasses.dataclass(frozen=True)
class Releases:
    """A variant with every release that is here, in the order of their versions."""

    releases: tuple[Release, ...]

    def to_text(self) -> str:
        """The table in aligned columns, and below it in full what was refused."""
        short = [dataclasses.replace(r, refused="yes" if r.refused else "") for r in self.releases]
        refusals = [f"{r.variant}: {r.refused}" for r in self.releases if r.refused]
        return "\n\n".join([ResultTable(Release, short, placeholder="").text(), *refusals])

    def _repr_html_(self) -> str:
        return ResultTable(Release, self.releases, placeholder="").html()


def compare_releases(study: StudyState, names: Sequence[str]) -> Releases:
    """Variants of a study that differ in their compiler alone, those that failed among them; others are left out."""
    display_names = get_variant_titles(study)
    first = next((study.results[n] for n in names if n in study.results), None)
    releases = []
    for name in names:
        facts, title = study.results.get(name), display_names[name]
        if facts is None and name in study.failures:
            compiler, refused = study.variants[name].backend or "", str(study.failures[name])
            releases.append(Release(title, compiler, refused=refused))
        if facts is None or first is None:
            continue
        engine, time = facts.engine, roofline.estimate_timing(facts)
        groups = difference.compare_variants(first, facts).groups if first is not facts else ()
        releases.append(
            Release(
                title,
                engine.title,
                engine.layer_count,
                sum(g.cause != "the same layers" for g in groups),
                time.estimated if time else None,
                engine.totals.get("activation"),
                engine.totals.get("weights"),
                engine.seconds,
                timed="reported" if engine.recorded else "measured",
            )
        )
    return Releases(tuple(releases))
