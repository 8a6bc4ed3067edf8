"""Engines that were built elsewhere, as variants of a study."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TypeVar

from rtlab import backends
from rtlab.backends.reference import get_stand_in
from rtlab.backends.selection import opener_for
from rtlab.core.arrays import Batch
from rtlab.core.data import CalibrationData
from rtlab.core.facts import VariantResult
from rtlab.core.protocols import Backend, Progress
from rtlab.core.stage import BUDGET_S, Budget
from rtlab.core.variant import Target, Variant
from rtlab.errors import (
    Unavailable,
    boundary,
)
from rtlab.study.job import Job, compile_variant
from rtlab.study.measuring import measure_all_stages
from rtlab.study.observations import Observations
from rtlab.study.progress import report_progress
from rtlab.study.recorded import collect_files, narrowest, read_recording, save_pasted_text
from rtlab.study.variants import check_variant_name

R = TypeVar("R")


class Recordings(Observations[R]):
    """What a study reads and opens."""

    @boundary("read the files")
    def read(
        self,
        name: str,
        *files: str | Path,
        text: str | bytes | None = None,
        layers: str | Path | None = None,
        profile: str | Path | None = None,
        times: str | Path | None = None,
        log: str | Path | None = None,
        output: str | Path | None = None,
        metadata: str | Path | None = None,
        cache: str | Path | None = None,
        model: str | Path | None = None,
        inputs: Batch | str | Path | None = None,
        optimization_profile: int | None = None,
        backend: str | Backend | None = None,
        **more: str | Path,
    ) -> R:
        """Read an engine of this model that another machine built, as a variant beside the others.

        Args:
            name: What the variant is called here; one of this name is replaced.
            files: Files whose kind is found by what is in them: any below, and NVIDIA trex's archives, profiles and
                optimized models of ONNX Runtime, results that Polygraphy saved.
            text: What you have in place of a file: lines of a log, a table of times, a piece of JSON, copied from an
                issue, a terminal or a mail. Quote marks, fences, colours and indentation are taken off.
            layers: ``trtexec --exportLayerInfo``.
            profile: ``trtexec --exportProfile``: GPU times of the layers, joined by name.
            times: ``trtexec --exportTimes``: GPU times of whole inferences.
            log: A verbose build log: fusion pass by pass, tactics, memory.
            output: ``trtexec --exportOutput``.
            metadata: JSON with ``device_information``, as NVIDIA's trex writes it: the GPU's name.
            cache: A TensorRT calibration cache that the engine was built with.
            model: The ONNX file that the engine was built from, where that is not the study's own: one that
                ``export`` wrote, for example.
            inputs: What ``output`` was computed from, arrays by input or an ``.npz``, so that errors can be told.
            optimization_profile: Which of several optimization profiles to show; the first by default.
            backend: What reads them, by its name or an object that follows ``rtlab.core.protocols``; rtlab's own reader
                by default.
            more: Files by another kind that ``rtlab.backends.readers.recognise`` tells, such as ``archive``.

        Raises:
            ReadError: a file is damaged, or files belong to different engines.
            ModelError: the model cannot be loaded.
            CalibrationError: the inputs do not fit the model.
        """
        with save_pasted_text(text) as pasted_files:
            files_by_kind = collect_files(
                (*files, *pasted_files),
                {
                    "layers": layers, "profile": profile, "times": times, "log": log, "output": output,
                    "metadata": metadata, "cache": cache, "model": model, **more,
                },
            )  # fmt: skip
            data = None if inputs is None else CalibrationData.of(inputs, model=self.model)
            if data is not None:
                data.check(self.model)
            batch = None if data is None else next(data.batches(self.model, len(data)))
            facts = read_recording(
                self.model, name, files_by_kind, inputs=batch, profile=optimization_profile, backend=backend
            )
        return self._adopt(facts)

    def open(
        self,
        name: str,
        plan: str | Path,
        *,
        backend: str | Backend | None = None,
        progress: Progress | None = None,
    ) -> R:
        """Open a serialized engine of this model on the GPU that it was built for, time it and compare its values.

        Elsewhere nothing can open it: export its layers there, and ``read`` them. None takes the backend that opens
        engines here, which is that of TensorRT where there is one.

        Raises:
            Unavailable: backend, driver or GPU are missing, or version or GPU are not the engine's.
            ReadError: the file is no engine.
            RunError: it cannot be run.
        """
        check_variant_name(name)
        backend = opener_for(backend)
        opener = backends.get(backend)
        if not (here := opener.availability()).ok:
            raise Unavailable(
                f'Cannot open "{plan}": backend "{backend}" does not work here: {here.reason} Elsewhere, export the '
                "layers where the engine's GPU is, with trtexec --loadEngine=... --exportLayerInfo=layers.json, and "
                "read them with study.read."
            )
        targets = opener.capabilities().targets
        variant = Variant(target=targets[0] if targets else Target("unknown"), backend=backend)
        with report_progress(progress) as reporter:
            job = Job(
                name, variant, self.model, self.data, self.task, None, None, self.limits, backend, get_stand_in(),
                plan=str(plan),
            )  # fmt: skip
            result = measure_all_stages(job, compile_variant(job, reporter), Budget(BUDGET_S), reporter)
        precise = dataclasses.replace(variant, precision=narrowest(result.engine))
        return self._adopt(dataclasses.replace(result, variant=precise, recorded=True))

    def _adopt(self, result: VariantResult) -> R:
        """Keep what was read, in the place of any variant of its name."""
        self._update_state(
            lambda state: (
                state.without_variant(result.name)
                .with_variant(result.name, result.variant, None)
                .with_facts(result)
            )
        )
        self._notify_views()
        return self._handle(result)
