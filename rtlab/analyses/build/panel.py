"""The question of the Build tab, which the page draws."""

from __future__ import annotations

from rtlab.analyses.build import get_build_log
from rtlab.analyses.build.story import BuildStory, build_story
from rtlab.analyses.panel_context import PanelContext, PanelSpec
from rtlab.errors import ReadError


def analyze_build(context: PanelContext) -> BuildStory:
    """How an engine was built.

    Raises:
        ReadError: no log tells.
    """
    result = context.result
    if (log := get_build_log(result)) is None:
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
