"""What can be asked of a variant: one folder a question, pure functions of its facts.

``Result`` in a notebook and every pane of a view ask these. An answer is kept with what it was computed from, so that a
stage that comes later leaves the answers of the earlier ones standing. ``panels`` lists those that have a panel.
"""

from rtlab.questions import (
    accuracy,
    build,
    difference,
    engine,
    findings,
    fusion,
    memory,
    recurrence,
    reformats,
    roofline,
    schedule,
    score,
    timing,
)

__all__ = [
    "accuracy",
    "build",
    "difference",
    "engine",
    "findings",
    "fusion",
    "memory",
    "recurrence",
    "reformats",
    "roofline",
    "schedule",
    "score",
    "timing",
]
