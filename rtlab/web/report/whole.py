"""A study as one JSON object, for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rtlab.analyses.recipe import build_recipe
from rtlab.analyses.titles import get_variant_titles
from rtlab.documents.serialization import to_builtins
from rtlab.web.page.document import SCHEMA, build_variant_document
from rtlab.web.page.table import describe_failure

if TYPE_CHECKING:
    from rtlab.analyses.study_state import StudyState


def build_document(study: StudyState, built: Sequence[str], baseline: str) -> dict[str, Any]:
    """All that is known of all variants.

    ``variants`` holds a document of each (``build_variant_document``), by name, and ``failures`` why others
    could not be built. ``recipe`` is what makes the variants again: lines of Python, the model's digest, and versions.
    """
    variant_titles = get_variant_titles(study)
    facts = {name: study.results[name] for name in built}
    first = study.results.get(baseline)
    return {
        "schema": SCHEMA,
        "model": {"name": study.model.name},
        "baseline": baseline or None,
        "variants": {
            name: build_variant_document(
                one, study.model, variant_titles, baseline=None if one is first else first
            )
            for name, one in facts.items()
        },
        "failures": {name: describe_failure(error) for name, error in study.failures.items()},
        "recipe": to_builtins(build_recipe(study, built)),
    }
