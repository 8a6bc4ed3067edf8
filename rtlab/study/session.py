"""A study without its views: model, data, variants and their results. ``rtlab.Study`` adds the views."""

from __future__ import annotations

import dataclasses
import functools
import weakref
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, Sequence, ValuesView
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rtlab.analyses import panels
from rtlab.analyses.cards.card import explain
from rtlab.analyses.difference import Difference, compare_variants
from rtlab.analyses.findings import list_findings
from rtlab.analyses.panel_context import PanelContext
from rtlab.analyses.study_state import StudyState
from rtlab.analyses.variants.summary import variants_frame
from rtlab.core.arrays import Batch
from rtlab.core.budget import BUDGET_S
from rtlab.core.data import CalibrationData
from rtlab.core.files import write
from rtlab.core.finding import Finding
from rtlab.core.model import Model, load
from rtlab.core.options import BuildOptions
from rtlab.core.peaks import Peaks
from rtlab.core.phrases import quote_names
from rtlab.core.protocols import Backend, Limits, Progress, View
from rtlab.core.ptq_transform import PtqTransform
from rtlab.core.task import Task
from rtlab.core.variant import Calibrator, Precision, Rewrite, Target, Variant
from rtlab.errors import VariantError, boundary
from rtlab.quantize import export
from rtlab.quantize.export import Exported
from rtlab.quantize.findings import check as check_placement
from rtlab.quantize.ranges import STRIDE
from rtlab.quantize.rewrites import apply_rewrites
from rtlab.study.observations import Observations, observe_part_inputs
from rtlab.study.planning import Scales, add_variant, vary
from rtlab.study.progress import report_progress
from rtlab.study.recorded import (
    adopt,
    collect_files,
    open_plan,
    read_recording,
    save_pasted_text,
    serialize_build,
)
from rtlab.study.remedies import expose_values
from rtlab.study.result import Result, make_result
from rtlab.study.runner import StudyRunner
from rtlab.study.state_holder import StateHolder, check_variant_name

if TYPE_CHECKING:
    import onnx
    from pandas import DataFrame
    from typing_extensions import Self

    from rtlab.documents.results import ResultView
    from rtlab.study.accuracy import StudyAccuracy
    from rtlab.study.calibration import StudyCalibration
    from rtlab.study.fusion import StudyFusion
    from rtlab.study.tuning import StudyTuning


class Session:
    """One model, several variants: all of ``rtlab.Study`` but what shows it.

    As a mapping it has the results of the variants that were built or read, by name; ``state`` has all else.
    """

    def __init__(
        self,
        model: Model | str | Path | bytes | onnx.ModelProto,
        *,
        data: Any = None,
        task: Task | None = None,
        limits: Limits | None = None,
        stride: int = STRIDE,
    ) -> None:
        loaded_model = model if isinstance(model, Model) else load(model)
        if task is not None:
            task.data.check(loaded_model)
        samples = None if data is None else CalibrationData.of(data, model=loaded_model)
        if samples is not None:
            samples.check(loaded_model)
        self._set_state(StudyState(loaded_model, samples, task, limits or Limits()), stride)

    @classmethod
    def of_state(cls, state: StudyState, stride: int = STRIDE) -> Self:
        """A study in this state, without views."""
        study = cls.__new__(cls)
        study._set_state(state, stride)  # noqa: SLF001 - one of its own
        return study

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        model: Model | str | Path | None = None,
        data: Any = None,
        task: Task | None = None,
        folders: Sequence[Path] | None = None,
    ) -> Self:
        """A saved study: see ``rtlab.open``, which has the same arguments and errors.

        ``folders`` are those that its model is looked for in, below too; None for any.

        >>> type(study).open(study.save("study.rtlab"))
        <Study tiny: 3 of 3 variants built>
        """
        from rtlab.study.saving import open_study

        return cls.of_state(*open_study(path, model=model, data=data, task=task, folders=folders))

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle all but the views, weights and samples included."""
        return type(self).of_state, (self.state, self._observations.stride)

    def _set_state(self, state: StudyState, stride: int) -> None:
        self._holder = StateHolder(state)
        self._observations = Observations(self._holder, stride)
        self._runner = StudyRunner(self._holder, self._observations)

    # The searches behind the namespaces are imported with the first of their calls.

    @functools.cached_property
    def accuracy(self) -> StudyAccuracy:
        """How much accuracy variants lose, where, why, and how to get it back."""
        from rtlab.study.accuracy import StudyAccuracy

        return StudyAccuracy(self._runner)

    @functools.cached_property
    def fusion(self) -> StudyFusion:
        """Why nodes are one layer or not, and what would change that."""
        from rtlab.study.fusion import StudyFusion

        return StudyFusion(self._runner)

    @functools.cached_property
    def tuning(self) -> StudyTuning:
        """What makes variants faster."""
        from rtlab.study.tuning import StudyTuning

        return StudyTuning(self._runner)

    @functools.cached_property
    def calibration(self) -> StudyCalibration:
        """From activations to scales, and the Q/DQ pairs that express them."""
        from rtlab.study.calibration import StudyCalibration

        return StudyCalibration(self._runner)

    def __repr__(self) -> str:
        state = self.state
        return f"<Study {state.model.name}: {len(state.results)} of {len(state.variants)} variants built>"

    @property
    def state(self) -> StudyState:
        """The study at this moment, as a frozen value."""
        return self._holder.state

    @property
    def views(self) -> weakref.WeakSet[View]:
        """Views that are notified of new results; one that is gone drops out."""
        return self._holder.views

    @property
    def model(self) -> Model:
        """The model."""
        return self.state.model

    @property
    def data(self) -> CalibrationData:
        """Samples for calibration and comparison; by default random ones, made when they are needed.

        Raises:
            ModelError: there are none, and a dimension of an input has no size.
        """
        return self._holder.data

    @property
    def stride(self) -> int:
        """Of large activation maps every how many elements enter a histogram."""
        return self._observations.stride

    @property
    def task(self) -> Task | None:
        """Held-out samples with labels, for the task's accuracy."""
        return self.state.task

    @task.setter
    def task(self, task: Task | None) -> None:
        self._holder.update(lambda state: dataclasses.replace(state, task=task))

    def __getitem__(self, name: str) -> Result:
        return make_result(self._holder.result(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self.state.results)

    def __len__(self) -> int:
        return len(self.state.results)

    def __contains__(self, name: object) -> bool:
        return name in self.state.results

    def _ipython_key_completions_(self) -> list[str]:
        """What IPython and Jupyter offer after ``study["``."""
        return [*self]

    def keys(self) -> KeysView[str]:
        """The names of the variants that were built or read.

        >>> list(study.keys())
        ['fp32', 'int8', 'fp16']
        """
        return self.state.results.keys()

    def values(self) -> ValuesView[Result]:
        """The results of the variants that were built or read.

        >>> [result.variant.name for result in study.values()]
        ['fp32', 'int8·minmax', 'fp16']
        """
        return {name: self[name] for name in self}.values()

    def items(self) -> ItemsView[str, Result]:
        """Names and results of the variants that were built or read.

        >>> {name: len(result.engine.layers) for name, result in study.items()}["fp16"]
        9
        """
        return {name: self[name] for name in self}.items()

    def get(self, name: str, default: Any = None) -> Any:
        """The result of a variant, or a default where it was neither built nor read.

        >>> study.get("bf16") is None
        True
        """
        return make_result(self.state.results[name]) if name in self.state.results else default

    def add(
        self,
        name: str,
        *,
        precision: str | Precision | Mapping[str, str | Precision] | None = None,
        calibrator: str | Calibrator | None = None,
        target: str | Target | None = None,
        backend: str | Backend | None = None,
        weights: str = "channel",
        sparsity: bool | str | Sequence[str] = False,
        scales: Scales = None,
        options: BuildOptions | Mapping[str, Any] | None = None,
        rewrites: Sequence[str | Rewrite] = (),
        calibrators: Mapping[str, str | Calibrator] | None = None,
        treatments: str | PtqTransform | Sequence[str | PtqTransform] = (),
        sizes: Mapping[str, int | Sequence[int]] | None = None,
        compiler: str | None = None,
    ) -> Variant:
        """Plan a variant; nothing is built yet.

        Args:
            name: The name of the variant; one of this name is replaced.
            precision: A precision, or patterns with theirs: ``{"*": "int8", "/head/*": "fp16"}`` (an id or a name
                with ``*``, or ``op:Conv``; the last that fits counts). Defaults to ``name`` when that is a
                precision, otherwise to fp32.
            calibrator: How activations get their scales, such as ``percentile(99.9)``; auto for int8, minmax
                for fp8 by default.
            target: ``cpu`` or a compute capability; None takes the builder's default.
            backend: The builder by its name, or an object that follows ``rtlab.core.protocols``; None takes the best.
            weights: One scale per output ``channel``, or per ``tensor``.
            sparsity: Prune weights to 2:4, all that can be (True) or those of the nodes that a pattern fits, and
                let the compiler look for sparse weights.
            scales: In place of a calibrator: a TensorRT calibration cache or its path, or amax by value.
            options: Options of a TensorRT builder by TensorRT's own names, as ``rtlab.BuildOptions.of`` takes them:
                ``{"builder_optimization_level": 5}``.
            rewrites: Nodes in another form that computes the same, such as ``"fold /stem/norm/BatchNormalization"``:
                the remedies of ``study.fusion.why``; ``"inline op:Celu"`` writes the nodes of a pattern as those that
                define their operator, in ONNX or in the model.
            calibrators: Calibrators of single values, by patterns of their names, or of the nodes that read them:
                ``{"/layer1/*": "percentile(99.99)"}``; the last that fits counts.
            treatments: Transforms against rounding errors, of all nodes that they suit or those of a pattern behind a
                space: ``equalize`` and ``smooth(0.5)`` even out channels, ``reconstruct`` rounds weights so that
                outputs stay, ``correct`` puts mean errors into biases.
            sizes: Sizes of dynamic dimensions that differ from the model's, by symbol or by input, as
                ``rtlab.load(..., shapes=...)`` takes them: prefill and one decoding step are two variants,
                ``{"sequence_length": 128}`` and ``{"sequence_length": 1}``. Scales come from the study's samples.
            compiler: A release of the compiler, such as ``1.5``: see ``rtlab.compilers``.

        Raises:
            VariantError: the combination cannot exist.
            ModelError: the model has no such dimension.
            Unavailable: the backend, or the release, is not installed.
            ReadError: the cache is damaged.

        >>> variant = study.add("bf16", target="sm86", backend="classic")
        >>> variant.name
        'bf16'
        >>> study.remove("bf16")
        """
        return add_variant(
            self._holder, name, precision=precision, target=target, backend=backend, compiler=compiler,
            scales=scales, options=options, calibrator=calibrator, weights=weights, sparsity=sparsity,
            rewrites=rewrites, calibrators=calibrators, treatments=treatments, sizes=sizes,
        )  # fmt: skip

    def vary(self, name: str, what: str) -> tuple[str, ...]:
        """Plan the variants that differ from one in a single choice; returns their names, for ``run``.

        Args:
            name: A variant.
            what: ``targets``, ``streams``, ``levels``, ``tf32``, ``sparsity``, ``compilers`` (each other release that
                is here) or ``pairs`` (the model without its own Q/DQ, in FP32); or an option of TensorRT's builder with
                its value, such as ``max_aux_streams=2`` or ``build_route=...``.

        Raises:
            VariantError: there is no such choice, or nothing of it would differ.
            Unavailable: the builder is not installed.

        >>> study.vary("fp16", "targets")[:2]
        ('fp16 sm75', 'fp16 sm80')
        >>> for name in ("fp16 sm75", "fp16 sm80", "fp16 sm89", "fp16 sm120"):
        ...     study.remove(name)
        """
        return vary(self._holder, name, what)

    def remove(self, name: str) -> None:
        """Forget a variant and its results.

        >>> study.remove("never added")
        >>> "never added" in study
        False
        """
        check_variant_name(name)
        self._holder.publish(lambda state: state.without_variant(name))

    @boundary("run the study")
    def run(
        self,
        names: Sequence[str] | None = None,
        *,
        executor: Executor | None = None,
        progress: Progress | None = None,
        compare: bool = True,
        budget_s: float = BUDGET_S,
        again: bool = False,
    ) -> Self:
        """Build, time, compare and score what is not built yet, or rests on random input although data came since.

        What was cancelled before goes on. Results come in stages (``Result.stages``): an engine is there, and views
        show it, while the rest is measured. A cancel or an error keeps the stages before it.

        Args:
            names: Variants to run; all that were added by default.
            executor: Any ``concurrent.futures.Executor``; one variant at a time here by default.
            progress: Where to report; the host's reporter by default.
            compare: Whether to run the variants for times, errors and score, or only to build them.
            budget_s: Seconds that each variant may take on this machine beyond compiling: calibration, times, errors
                and score rest on fewer samples and runs where they would take longer, and say so; ``measure`` goes on
                from there. What has no result by then ends a few seconds later. 0 only builds; ``math.inf`` measures
                all there is.
            again: Whether to build what is built once more. The old engine stays until the new one is built.

        Raises:
            VariantError: there is no variant of a name, or the budget is no number of seconds; or one that was read
                from files is to be built again.
            RtlabError: the first failure, after the others were tried.
            Cancelled: the work was stopped.

        >>> study.run(["fp16"])["fp16"]
        <Result fp16: 12 nodes, 9 layers>
        """
        self._runner.run(
            names, executor=executor, progress=progress, compare=compare, budget_s=budget_s, again=again
        )
        return self

    @boundary("measure the variant")
    def measure(self, name: str, *, budget_s: float = BUDGET_S, progress: Progress | None = None) -> Result:
        """Go on measuring a built variant: more runs, all samples, and what failed, once more, in ``budget_s`` seconds.

        Raises:
            VariantError: the variant is not built here, or the budget is no number of seconds.
            Cancelled: the work was stopped; what was measured is kept.

        >>> study.measure("fp32", budget_s=1).timing.origin.split(",")[0]
        'measured'
        """
        return make_result(self._runner.measure(name, budget_s=budget_s, progress=progress))

    @boundary("read the files")
    def read(
        self,
        name: str,
        *files: str | Path,
        text: str | bytes | None = None,
        plan: str | Path | None = None,
        inputs: Batch | str | Path | None = None,
        optimization_profile: int | None = None,
        backend: str | Backend | None = None,
        progress: Progress | None = None,
        **kinds: str | Path | None,
    ) -> Result:
        """Read an engine of this model that another machine built, as a variant beside the others.

        Args:
            name: The name of the variant; one of this name is replaced.
            files: Files whose kind is found by their content: those below, and NVIDIA trex's archives, profiles and
                optimized models of ONNX Runtime, results that Polygraphy saved.
            text: Text in place of a file: lines of a log, a table of times, a piece of JSON, copied from an issue, a
                terminal or a mail. Quote marks, fences, colours and indentation are taken off.
            plan: A serialized engine in place of all these, which is opened on the GPU that it was built for, timed and
                compared. Elsewhere nothing can open it: export its layers there, and read them.
            inputs: What ``output`` was computed from, arrays by input or an ``.npz``, for the errors.
            optimization_profile: Which of several optimization profiles to show; the first by default.
            backend: What reads or opens them, by its name or an object that follows ``rtlab.core.protocols``; by
                default rtlab's own reader, or the backend that opens engines here.
            progress: Where to report; the host's reporter by default.
            kinds: Files by kind: ``layers``, ``profile``, ``times`` and ``output`` of trtexec's ``--export`` options;
                ``log``, a build log or any lines with messages; ``metadata``, NVIDIA trex's JSON with
                ``device_information``; ``cache``, the calibration cache that the engine was built with; ``model``, the
                ONNX file that it was built from where that is not the study's own; and the others of
                ``rtlab.backends.readers.recognise``.

        Raises:
            ReadError: a file is damaged, or files belong to different engines.
            ModelError: the model cannot be loaded.
            CalibrationError: the inputs do not fit the model.
            Unavailable: backend, driver or GPU to open a plan are missing, or version or GPU are not the engine's.

        >>> path = study.save_build("fp16", "build.json")
        >>> study.read("from a file", path).recorded
        True
        >>> study.remove("from a file")
        """
        if plan is not None:
            with report_progress(progress) as reporter:
                result = open_plan(self._holder, name, plan, backend, reporter)
            adopt(self._holder, result)
            return make_result(result)
        with save_pasted_text(text) as pasted_files:
            files_by_kind = collect_files((*files, *pasted_files), kinds)
            data = None if inputs is None else CalibrationData.of(inputs, model=self.model)
            if data is not None:
                data.check(self.model)
            batch = None if data is None else next(data.batches(self.model, len(data)))
            facts = read_recording(
                self.model, name, files_by_kind, inputs=batch, profile=optimization_profile, backend=backend
            )
        adopt(self._holder, facts)
        return make_result(facts)

    def findings(self, name: str | None = None) -> tuple[Finding, ...]:
        """What is worth changing about a variant, the most costly first; or about the model.

        Without a name: where the quantization that the model already has is placed badly, which
        ``study.calibration.fix_qdq`` repairs; empty for a model without any.

        Raises:
            VariantError: the variant is not built.

        >>> study.findings("int8"), study.findings()
        ((), ())
        """
        if name is None:
            return check_placement(self.model, calibrated=True)
        return list_findings(self._holder.result(name))

    def difference(self, first: str, second: str, *, gpu: str | Peaks | None = None) -> Difference:
        """Where the time went from one variant to another, by groups of ONNX nodes.

        Args:
            first: The variant before.
            second: The variant after.
            gpu: In place of what was measured, times of both engines are estimated for this GPU; ``"target"`` takes
                for each one of the GPUs that it was built for.

        Raises:
            VariantError: one of them is not built, or the GPU is not known.
            ModelError: a dimension has no size.

        >>> study.difference("fp32", "int8")
        <Difference fp32 to int8: 11 groups>
        """
        return compare_variants(self._holder.result(first), self._holder.result(second), gpu=gpu)

    @boundary("answer the question")
    def ask(self, question: str, *, variant: str, baseline: str | None = None, **settings: str) -> ResultView:
        """The result of one analysis of a variant, such as "kernels": it shows itself in a notebook.

        ``frame`` is its table for pandas, ``plain()`` all of it as JSON, ``noun`` the numbers.

        Args:
            question: One of ``rtlab.analyses.panels``.
            variant: Its name.
            baseline: The variant that it is compared with, where the analysis compares.
            settings: Those of its panel.

        Raises:
            VariantError: there is no such variant or question.
            RtlabError: what it needs of the variant is not known.

        >>> study.ask("memory", variant="fp16").frame().empty
        False
        """
        return panels.ask(question, self._panel_context(variant, baseline, settings))

    def frame(
        self,
        question: str | None = None,
        *,
        variant: str | None = None,
        baseline: str | None = None,
        **settings: str,
    ) -> DataFrame:
        """One row per variant as a ``pandas.DataFrame``, or the table of an answer.

        Without a question the index is the name of the variant, planned and failed ones included; the columns are the
        fields of ``rtlab.analyses.variants.summary.VariantSummary``, with NA for what is not known. Units and origins
        are in ``attrs``. With one, the arguments are those of ``ask``.

        Raises:
            VariantError: there is no such variant or question, or a question comes without a variant.
            RtlabError: what it needs of the variant is not known.

        >>> study.frame()["precision"].tolist()
        ['fp32', 'int8', 'fp16']
        >>> len(study.frame("table", variant="fp16"))
        9
        """
        if question is None:
            if variant is not None or baseline is not None or settings:
                raise VariantError(
                    "Cannot make the table: a variant or a setting comes without a question. Leave it out for one row "
                    'per variant, or name the question, such as frame("kernels", variant=...).'
                )
            return variants_frame(self.state)
        if variant is None:
            raise VariantError(
                f'Cannot answer "{question}": no variant is named. Choose one: {quote_names(self) or "none is built"}.'
            )
        return self.ask(question, variant=variant, baseline=baseline, **settings).frame()

    def explain(self, node: str, *, variant: str) -> str:
        """In words: which layers a node became and how we know, or why it has none.

        >>> study.explain("stem/Relu", variant="fp16").startswith('"stem/Relu" runs in layer 2')
        True
        """
        return explain(self._holder.result(variant), self.model, node)

    @boundary("export the variant")
    def export(
        self, name: str, path: str | Path, *, cache: str | Path | None = None, version: str = export.VERSION
    ) -> Exported:
        """Write a variant's prepared model and its scales; returns the files, and the commands that build it elsewhere.

        Args:
            name: A variant that is planned; it need not be built.
            path: The ONNX file; the scales go beside it, as ``.scales.json``.
            cache: Where a calibration cache of TensorRT 10 goes, for its implicit INT8.
            version: The version that the head of the cache names; TensorRT ignores a cache of another.

        Raises:
            VariantError: there is no such variant, or it has no INT8 activations for a cache.
            RtlabError: a file cannot be written, or is the one that the model was read from.

        >>> study.export("int8", "int8.onnx").model.name
        'int8.onnx'
        """
        variant = self._holder.variant(name, "export")
        ready = self._runner.prepare(name)
        return export.export(self.model, variant, ready, path, cache=cache, version=version)

    def save_build(
        self, name: str, path: str | Path, *, kind: Literal["build", "engine", "layers"] = "build"
    ) -> Path:
        """Write the build of a variant as one file of JSON, for ``read`` on a machine that has no builder.

        It has the layers, what else the compiler reported, times that were measured of this engine, and the structure
        of the model, so that it opens alone; no weights but single numbers, and integers that decide about shapes.

        Args:
            name: The variant.
            path: The file.
            kind: In place of the whole ``build`` the serialized ``engine``, for ``read`` with ``plan=`` and for any
                TensorRT of its release on its GPU; or the ``layers`` as TensorRT 11's inspector would write them.

        Raises:
            VariantError: the variant is not built, or its files list no layers.
            RunError: its backend kept no serialized engine.
            RtlabError: the file cannot be written, or is the one that the model was read from.

        >>> study.save_build("fp16", "build.json").name
        'build.json'
        """
        content = serialize_build(self._holder.result(name), self.model, kind)
        return write(path, content, what=f"the {kind}", model=self.model)

    @boundary("save the study")
    def save(self, path: str | Path, *, weights: bool = False) -> Path:
        """Write the study as one file, for ``rtlab.open``: variants, results, times, scores, and what is set.

        An old file is replaced when the new one is complete. Names and numbers of the model's structure, ranges of
        activations, predictions and labels go along. Weights and samples do not: where the model's file is still at
        its place, all works as before, and elsewhere what was found out is shown.

        Args:
            path: The file, such as ``study.rtlab``.
            weights: Whether the model with its weights and the samples go along, so that anybody can go on.

        Raises:
            ModelError: the weights are asked for, and are not here, or do not fit into one file.
            RtlabError: the file cannot be written, or is the one that the model was read from.

        >>> study.save("study.rtlab").name
        'study.rtlab'
        """
        # It is needed here alone, and brings every analysis along.
        from rtlab.study.saving import save_study

        return save_study(self.state, path, stride=self._observations.stride, weights=weights)

    @boundary("cut the model")
    def cut(
        self,
        nodes: Iterable[str] = (),
        *,
        until: str | Iterable[str] = (),
        rewrites: Iterable[str | Rewrite] = (),
        samples: int = 16,
        progress: Progress | None = None,
    ) -> Self:
        """A study of part of the model, on what this study's samples give the part to read.

        Args:
            nodes: Nodes by id; one of a body or of a function stands for the node of the main graph that it runs in.
            until: Values in place of nodes: the part is what they follow from, and they are its outputs. For one
                within a function, as ``call/value``, the calls of functions are written out before.
            rewrites: Forms that the model is written in before, as ``add`` takes them: the calls of local functions.
            samples: On how many samples the values that enter the part are computed.
            progress: Where to report; the host's reporter by default.

        Raises:
            ModelError: there is no such node or value, none is chosen, or the weights do not fit into one file.
            VariantError: a node lacks a form.
            Unavailable: nothing here can run the model.
            Cancelled: the work was stopped.

        >>> study.cut(["stem/Conv", "stem/BatchNormalization"])
        <Study tiny_part: 0 of 0 variants built>
        """
        values = [until] if isinstance(until, str) else [*until]
        model = apply_rewrites(self.model, [Rewrite.of(r) for r in rewrites])
        model = expose_values(model, values)
        part = model.extract_until(values) if values else model.extract(nodes)
        with report_progress(progress) as reporter:
            data = observe_part_inputs(model, part, self.data.take(samples), reporter)
        return type(self)(part, data=data, limits=self.state.limits)

    def _panel_context(self, variant: str, baseline: str | None, settings: Mapping[str, str]) -> PanelContext:
        other = None if baseline is None else self._holder.result(baseline)
        return PanelContext(self.state, self._holder.result(variant), other, settings)
