"""How the variant shown was made: the lines to make it again, beside what made it."""

from __future__ import annotations

from rtlab.analyses.panel_context import PanelContext, PanelParts
from rtlab.analyses.recipe import Recipe, build_recipe
from rtlab.documents.contract import Script


def build_recipe_panel(context: PanelContext) -> PanelParts:
    """The lines, the digest of the model, and the releases of all that had a part."""
    variant_recipe = analyze_recipe(context)
    scripts = [Script(label="Python", text=variant_recipe.python)]
    scripts += [Script(label="Command line", text=f"{command}\n") for command in variant_recipe.commands]
    return PanelParts(result=variant_recipe, scripts=scripts)


def analyze_recipe(context: PanelContext) -> Recipe:
    """How the variant was made."""
    return build_recipe(context.study, [context.result.name])
