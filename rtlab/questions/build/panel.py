"""The question of the Build tab, which the page draws."""

from __future__ import annotations

from rtlab import questions
from rtlab.errors import ReadError
from rtlab.questions.build.story import BuildStory, story
from rtlab.questions.scene import Question, Scene


def build(scene: Scene) -> BuildStory:
    """How an engine was built.

    Raises:
        ReadError: no log tells.
    """
    result = scene.result
    if (log := questions.build.log(result)) is None:
        raise ReadError(
            f'Cannot tell how "{result.name}" was built: there is no verbose log of it. Read the engine together with '
            "the log of trtexec --verbose (log=)."
        )
    return story(log, scene.model, result.engine, scene.mapping)


BUILD = Question(
    "build",
    tab="build",
    label="Build",
    title="How it was built",
    lead="The builder's passes over the network, what each decided, and which tactics it timed.",
    noun=build,
    sent=BuildStory,
)
