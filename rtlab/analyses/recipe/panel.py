"""How the variant shown was made: the lines to make it again, beside what made it."""

from __future__ import annotations

from rtlab.analyses.panel_context import PanelContext, PanelSpec
from rtlab.analyses.recipe import Recipe, build_recipe
from rtlab.documents.contract import Panel, Script


def recipe(context: PanelContext) -> Panel:
    """The lines, the digest of the model, and the releases of all that had a part."""
    variant_recipe = _build_recipe(context)
    scripts = [Script(label="Python", text=variant_recipe.python)]
    if variant_recipe.commands:
        scripts.append(Script(label="Command line", text="\n".join(variant_recipe.commands) + "\n"))
    return RECIPE.panel(context, variant_recipe, scripts=scripts)


def _build_recipe(context: PanelContext) -> Recipe:
    return build_recipe(context.study, context.result)


RECIPE = PanelSpec(
    "recipe",
    tab="recipe",
    label="Reproduce",
    title="Make it again",
    lead="These lines make the variant again, from the same model, data and choices. Dates are those of the build and "
    "of the times; versions are those of the process that shows this.",
    noun=_build_recipe,
    panel_builder=recipe,
)
