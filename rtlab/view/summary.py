"""What the layers of an engine are, and where its time goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rtlab.view.contract import Coverage, Summary

if TYPE_CHECKING:
    from rtlab.study import Result


def summary(result: Result) -> Summary:
    """Kinds, precisions, transitions, reformats, and how far the mapping explains the engine."""
    times = result.timing
    return Summary(
        kinds=[],
        precisions=[],
        transitions=[],
        reformats=[],
        coverage=Coverage(
            nodes=0, all_nodes=0, explained=0, layers=0, all_layers=0, moves=0, declared=0, pairs=0
        ),
        processor=times.processor if times else "",
        source=times.origin if times else "",
        total=times.total if times else None,
        summed=times.summed if times else None,
        ratio=None,
    )
