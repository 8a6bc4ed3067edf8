"""The question of the Build tab, which the page draws."""

from __future__ import annotations

from rtlab import questions
from rtlab.errors import ReadError
from rtlab.questions.build.story import BuildStory, build_story
from rtlab.questions.panel_context import PanelContext, PanelSpec


def analyze_build(context: PanelContext) -> BuildStory:
    """How an engine was built.

    Raises:
        ReadError: no log tells.
    """
    result = context.result
    if (log := questions.build.get_build_log(result)) is None:
        raise ReadError(
            f'Cannot tell how "{result.name}" was built: there is no verbose log of it. Read the engine together with '
            "the log of trtexec --verbose (log=)."
        )
    return build_story(log, context.model, result.engine, context.mapping)


BUILD = PanelSpec(
    "build",
    tab="build",
    label="Build",
    title="How it was built",
    lead="The builder's passes over the network, what each decided, and which tactics it timed.",
    noun=analyze_build,
    payload_type=BuildStory,
)
