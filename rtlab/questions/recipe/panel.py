"""How the variant shown was made: the lines to make it again, beside what made it."""

from __future__ import annotations

from rtlab.documents.contract import Panel, Script
from rtlab.questions.recipe import Recipe, of
from rtlab.questions.scene import Question, Scene


def recipe(scene: Scene) -> Panel:
    """The lines, the digest of the model, and the releases of all that had a part."""
    found = asked(scene)
    scripts = [Script(label="Python", text=found.python)]
    if found.commands:
        scripts.append(Script(label="Command line", text="\n".join(found.commands) + "\n"))
    return RECIPE.panel(scene, found, scripts=scripts)


def asked(scene: Scene) -> Recipe:
    """The answer itself."""
    return of(scene.study, scene.result)


RECIPE = Question(
    "recipe",
    tab="recipe",
    label="Reproduce",
    title="Make it again",
    lead="These lines make the variant again, from the same model, data and choices. Dates are those of the build and "
    "of the times; versions are those of the process that shows this.",
    noun=asked,
    drawn=recipe,
)
