"""How the variant shown was made: the lines to make it again, beside what made it."""

from __future__ import annotations

from rtlab.analyses.panel_context import PanelContext, PanelSpec
from rtlab.analyses.recipe import Recipe, build_recipe
from rtlab.documents.contract import Panel, Script


def recipe(context: PanelContext) -> Panel:
    """The lines, the digest of the model, and the releases of all that had a part."""
    noun = _build_recipe(context)
    scripts = [Script(label="Python", text=noun.python)]
    scripts += [Script(label="Command line", text=f"{command}\n") for command in noun.commands]
    return RECIPE.panel(context, noun, scripts=scripts)


def _build_recipe(context: PanelContext) -> Recipe:
    return build_recipe(context.study, [context.result.name])


RECIPE = PanelSpec(
    "recipe",
    tab="recipe",
    label="Reproduce",
    title="Make it again",
    lead="These lines make the variant again, from the same model, data and choices. Versions are those of the process "
    "that shows this.",
    noun=_build_recipe,
    panel_builder=recipe,
)
