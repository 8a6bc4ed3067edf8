"""A study as one JSON object, for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rtlab.analyses import recipe
from rtlab.analyses.recipe import lines
from rtlab.analyses.titles import get_variant_titles
from rtlab.documents.serialization import to_builtins
from rtlab.web.page.document import SCHEMA, build_variant_document
from rtlab.web.page.table import describe_failure

if TYPE_CHECKING:
    from rtlab.analyses.study_state import StudyState


def build_document(study: StudyState, built: Sequence[str], baseline: str) -> dict[str, Any]:
    """All that is known of all variants.

    ``variants`` holds a document of each (``build_variant_document``), by name, and ``failures`` why others could not
    be built. ``model`` is its file's name with size in bytes and digests, null where there is no file;
    ``recipe`` what makes the variants again: lines of Python, commands, and versions; ``dates`` when each was built and
    timed.
    """
    variant_titles = get_variant_titles(study)
    facts = {name: study.results[name] for name in built}
    first = study.results.get(baseline)
    return {
        "schema": SCHEMA,
        "model": {**to_builtins(recipe.identity(study.model)), "name": study.model.name},
        "data": recipe.data(study),
        "baseline": baseline or None,
        "variants": {
            name: build_variant_document(
                one, study.model, variant_titles, baseline=None if one is first else first
            )
            for name, one in facts.items()
        },
        "failures": {name: describe_failure(error) for name, error in study.failures.items()},
        "recipe": {
            "python": lines.python(study, built),
            "commands": list(lines.command(study, built)),
            "untold": {name: why for name in built if (why := lines.explain_missing_command(study, name))},
            "versions": to_builtins(recipe.versions(list(facts.values()))),
            "dates": {
                name: {
                    "built": recipe.date(one.engine.built),
                    "timed": None if one.profile is None else recipe.date(one.profile.taken),
                }
                for name, one in facts.items()
            },
        },
    }
