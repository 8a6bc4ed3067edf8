"""How the variant shown was made: the lines to make it again, beside what made it."""

from __future__ import annotations

from rtlab.documents.contract import Panel, Script
from rtlab.questions.panel_context import PanelContext, PanelSpec
from rtlab.questions.recipe import Recipe, of


def recipe(context: PanelContext) -> Panel:
    """The lines, the digest of the model, and the releases of all that had a part."""
    variant_recipe = build_recipe(context)
    scripts = [Script(label="Python", text=variant_recipe.python)]
    if variant_recipe.commands:
        scripts.append(Script(label="Command line", text="\n".join(variant_recipe.commands) + "\n"))
    return RECIPE.panel(context, variant_recipe, scripts=scripts)


def build_recipe(context: PanelContext) -> Recipe:
    """The answer itself."""
    return of(context.study, context.result)


RECIPE = PanelSpec(
    "recipe",
    tab="recipe",
    label="Reproduce",
    title="Make it again",
    lead="These lines make the variant again, from the same model, data and choices. Dates are those of the build and "
    "of the times; versions are those of the process that shows this.",
    noun=build_recipe,
    panel_builder=recipe,
)
