"""What a page and a report get alike, as bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rtlab import questions
from rtlab.documents.payload import encode
from rtlab.questions.build.panel import BuildStory, story
from rtlab.questions.calibration.panel import Calibrated, calibration
from rtlab.relation.mapping import placed

if TYPE_CHECKING:
    from rtlab.core.facts import Facts
    from rtlab.core.model import Model
    from rtlab.questions.snapshot import Snapshot


def packed_story(result: Facts, model: Model) -> bytes:
    """How an engine was built, a ``BuildStory``; empty where no log tells."""
    if (log := questions.build.log(result)) is None:
        return b""
    mapping = placed(questions.fusion.mapping(result), model)
    return encode(story(log, model, result.engine, mapping), BuildStory)


def packed_calibration(study: Snapshot) -> bytes:
    """What calibration has seen, a ``Calibrated``; empty where nothing was observed."""
    if (seen := study.calibration) is None:
        return b""
    used = [v.calibrator for v in study.variants.values() if v.calibrator is not None]
    return encode(calibration(study.model, study.task, seen, used), Calibrated)
