"""The question of the Calibration tab, which the page draws: it is about the model, whatever variant is shown."""

from __future__ import annotations

from rtlab.analyses.calibration.calibrated import Calibrated, summarize_calibration
from rtlab.analyses.panel_context import PanelContext, PanelSpec
from rtlab.errors import CalibrationError


def analyze_calibration(context: PanelContext) -> Calibrated:
    """What calibration has seen.

    Raises:
        CalibrationError: nothing was observed.
    """
    study = context.study
    if study.calibration is None:
        raise CalibrationError(
            f'Cannot tell the ranges of "{study.model.name}": nothing was observed. Run '
            "study.calibration.observe() first."
        )
    used = [v.calibrator for v in study.variants.values() if v.calibrator is not None]
    return summarize_calibration(study.model, study.scored_task, study.calibration, used)


CALIBRATION = PanelSpec(
    "calibration",
    tab="calibration",
    label="Calibration",
    title="Calibration",
    lead="What calibration saw of each value, what each calibrator makes of it, and how they do on the task.",
    noun=analyze_calibration,
    payload_type=Calibrated,
    shared=True,
)
