"""``study.fusion``: why nodes are one layer or not, what would change that, and what another compiler does."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from rtlab import backends
from rtlab.analyses.bisection import Bisection
from rtlab.analyses.releases import Releases, compare_releases
from rtlab.analyses.study_state import StudyState
from rtlab.analyses.variants.variations import get_add_arguments
from rtlab.analyses.why import FusedLayer, StepRecord, Verdict, VerdictRecord, read
from rtlab.analyses.why.advice import Advice
from rtlab.backends import compilers
from rtlab.backends.capabilities import require_capability
from rtlab.backends.reference import get_evaluator, get_stand_in
from rtlab.core import files
from rtlab.core.budget import Budget, WorkContext
from rtlab.core.facts import VariantResult
from rtlab.core.protocols import Builder, Progress
from rtlab.core.variant import Rewrite, RewriteKind
from rtlab.errors import BackendError, RtlabError, VariantError, boundary, guard_methods
from rtlab.experiments.bisecting import BisectionSearch, BisectionSide
from rtlab.experiments.why import explain_unavailable, find_builder, find_layer, get_builder, neighbours
from rtlab.experiments.why.advising import AdviceSearch, AdviceTools
from rtlab.experiments.why.reported import explain_by_rules, make_reported_verdict
from rtlab.experiments.why.search import FusionBlockerSearch
from rtlab.experiments.why.together import FusionSplitSearch
from rtlab.quantize.inlining import list_patterns
from rtlab.quantize.rewrites import iter_possible_rewrites
from rtlab.study.planning import add_variant, vary
from rtlab.study.progress import report_progress
from rtlab.study.runner import StudyRunner


@guard_methods
class StudyFusion:
    """Why nodes of variants are one layer or not, what would change that, and what another compiler does."""

    def __init__(self, runner: StudyRunner) -> None:
        self._runner, self._observations, self._holder = runner, runner.observations, runner.holder

    @boundary("ask why nodes are one layer, or why not")
    def why(
        self,
        node: str,
        other: str | None = None,
        *,
        variant: str,
        builds: int = 60,
        seconds: float = 60.0,
        again: bool = False,
        progress: Progress | None = None,
    ) -> Verdict | FusedLayer:
        """Why two neighbouring nodes are not one layer of a variant's engine, or why those of one layer are one.

        The compiler of the variant is asked by experiment; a cancel, or the end of the budget, keeps the verdict until
        then. Of an engine that was read from files, the verdict on two nodes is what the files show. Verdicts and
        explanations are kept in the user's cache too, for the same model, compiler and target, with their date.

        Args:
            node: One of two neighbours; or without ``other`` a node, or a layer by its id.
            other: The other one.
            variant: A built variant.
            builds: How many parts may be built.
            seconds: How long it may take, but for a build that is at work by then.
            again: Whether to leave the cache out.
            progress: Where to report; the host's reporter by default.

        Raises:
            ModelError: there is no such node, or they are no neighbours.
            VariantError: the variant is not built, the layer does the work of one node alone, or its compiler cannot be
                asked about a layer.
            Unavailable: its compiler is not installed here.
            Cancelled: stopped before there was a verdict.

        >>> study.fusion.why("stem/Conv", "stem/BatchNormalization", variant="fp16").verdict
        'fused'
        """
        facts = self._holder.result(variant)
        if other is None:
            return self._explain_layer(facts, node, Budget(seconds, builds), again=again, progress=progress)
        first, second = neighbours(self._holder.state.model, node, other)
        before: Verdict | None = None
        if reason := explain_unavailable(facts):
            before = make_reported_verdict(facts, first, second, reason)
        elif facts.engine.maker.predicts:
            before = explain_by_rules(facts, first, second)
        else:
            builder = get_builder(facts)
            before = None if again else load_verdict(facts, first, second)
        if before is not None:
            self._holder.publish(lambda state: _with_verdict(state, variant, before))
            return before
        experiment = FusionBlockerSearch(facts.prepared.model, facts.engine, facts.variant, first, second)
        with report_progress(progress) as reporter:
            context = WorkContext(builder, reporter, Budget(seconds, builds))
            verdict = self._runner.search(
                experiment, context, lambda state, answer: _with_verdict(state, variant, answer)
            )
        save_answer(facts, verdict)
        return verdict

    @boundary("advise on the fusions")
    def advise(self, variant: str, *, seconds: float = 60.0, progress: Progress | None = None) -> Advice:
        """Why fusions of a variant do not happen, cause by cause, and which remedies keep the outputs and pay.

        Pairs of neighbours that are not one layer are asked about, the one with most at stake first; rewrites are tried
        on the whole model. A cancel, or the end of the budget of ``seconds``, keeps the advice until then.

        Raises:
            VariantError: the variant is not built, or was read from files of another machine.
            Unavailable: its compiler is not installed here.
            Cancelled: stopped before there was advice.

        >>> study.fusion.advise("fp32", seconds=5).compiler[:12]
        'ONNX Runtime'
        """
        facts = self._holder.result(variant)
        tools = AdviceTools(
            get_builder(facts),
            get_evaluator() if get_stand_in() is not None else None,
            lambda: next(self._holder.data_of(facts.variant).batches(facts.source, 1)),
            functools.partial(load_verdict, facts),
            functools.partial(save_answer, facts),
        )
        with report_progress(progress) as reporter:
            return self._runner.search(
                AdviceSearch(facts),
                WorkContext(tools, reporter, Budget(seconds)),
                lambda state, advice: state.with_advice(variant, advice),
            )

    def suggest_edit(
        self, variant: str, rewrites: Sequence[str | Rewrite] | None = None, *, as_: str | None = None
    ) -> str:
        """Plan a variant with nodes in other forms, for ``run``; returns its name.

        Args:
            variant: The variant that it derives from.
            rewrites: Those of a verdict of ``why``; by default all remedies of ``advise`` that keep the outputs and
                pay.
            as_: Its name; by default the other's name with ``rewritten``.

        Raises:
            VariantError: there is no such variant, no advice that has a remedy, or a node lacks the form.

        >>> study.fusion.suggest_edit("fp32", ["fold stem/BatchNormalization"])
        'fp32 rewritten'
        >>> study.remove("fp32 rewritten")
        """
        base_variant = self._holder.variant(variant, "edit")
        advice = self._holder.state.advice.get(variant)
        every = advice.every.rewrites if advice is not None and advice.every is not None else ()
        selected_rewrites = every if rewrites is None else rewrites
        if not selected_rewrites:
            raise VariantError(
                f'Cannot edit "{variant}": no remedy is known that keeps the outputs and pays. Ask with '
                f"study.fusion.advise({variant!r}), or give rewrites=..., such as those of "
                "study.fusion.why(...).rewrites."
            )
        name = as_ or f"{variant} rewritten"
        add_variant(
            self._holder,
            name,
            **{**get_add_arguments(base_variant), "rewrites": [*base_variant.rewrites, *selected_rewrites]},
        )
        return name

    def rewrites(self, *kinds: RewriteKind) -> tuple[Rewrite, ...]:
        """The rewrites that fit the model, in graph order, for ``Study.add`` and ``suggest_edit``.

        Args:
            kinds: Kinds of rewrites, such as ``merge``, which makes siblings one wider node; by default all that may
                pay, which ``inline`` does not.

        Raises:
            VariantError: there is no such kind.

        >>> [str(rewrite) for rewrite in study.fusion.rewrites("fold")]
        ['fold stem/BatchNormalization']
        """
        for kind in kinds:
            if kind not in get_args(RewriteKind):
                raise VariantError(
                    f'Cannot look for nodes that can be written by "{kind}": there is no such form. '
                    f"Choose among {', '.join(get_args(RewriteKind))}."
                )
        model = self._holder.state.model
        possible_rewrites = [*iter_possible_rewrites(model, (n.id for n in model.top))]
        if "inline" in kinds:
            possible_rewrites += [Rewrite("inline", p) for p in list_patterns(model, [*model.by_id])]
        return tuple(rewrite for rewrite in possible_rewrites if not kinds or rewrite.kind in kinds)

    @boundary("look for what changed")
    def bisect(
        self,
        first: str,
        second: str,
        *,
        builds: int = 200,
        seconds: float = 60.0,
        progress: Progress | None = None,
    ) -> Bisection:
        """What changed from one variant to another: groups of nodes, and for each the fewest that show it.

        The two may differ in their compiler, their precision or their options; of a compiler that refuses the model
        the result is the fewest nodes that it refuses. Of engines from files the groups alone are returned. What is not
        built yet is built first. ``builds`` parts may be built, in ``seconds`` approximately; a cancel keeps the result
        until then.

        Raises:
            VariantError: there is no such variant.
            Cancelled: stopped before there was a result.

        >>> study.fusion.bisect("fp32", "int8", seconds=5).first
        'fp32'
        """
        for name in (first, second):
            self._holder.variant(name, "bisect")
        with report_progress(progress) as reporter:
            one, two = (self._side(name, reporter) for name in (first, second))
            if one.title == two.title:
                one, two = (
                    dataclasses.replace(s, title=n, on=s.title) for s, n in ((one, first), (two, second))
                )
            rig: WorkContext[object] = WorkContext(None, reporter, Budget(seconds, builds))
            return self._runner.search(
                BisectionSearch(one, two),
                rig,
                lambda state, answer: state.with_entries(bisections={(first, second): answer}),
            )

    @boundary("build with every release")
    def releases(self, name: str, *, progress: Progress | None = None) -> Releases:
        """Build a variant with every release of its compiler that is here, and set them side by side.

        A release that refuses has a row with its error. What was built before a cancel is kept.

        Raises:
            VariantError: there is no such variant, or no other release of its compiler: see ``rtlab.compilers``.
            Cancelled: the work was stopped.

        >>> study.fusion.releases("fp16")  # doctest: +SKIP
        """
        others = vary(self._holder, name, "compilers")
        order = [c.backend for c in compilers.known()]
        ordered_names = sorted(
            (name, *others), key=lambda n: order.index(self._holder.state.variants[n].backend or order[-1])
        )
        with report_progress(progress) as reporter:
            for one in ordered_names:
                with contextlib.suppress(BackendError, VariantError):
                    self._runner.run([one], progress=reporter, compare=False)
        return compare_releases(self._holder.state, ordered_names)

    @boundary("write a record")
    def record(self, answer: Verdict | FusedLayer, path: str | Path, *, variant: str) -> Path:
        """Write what ``why`` returned of a variant as JSON, with all that it depends on; returns the path.

        Raises:
            VariantError: the variant is not built.
            RtlabError: the file cannot be written there.

        >>> verdict = study.fusion.why("stem/Conv", "stem/BatchNormalization", variant="fp16")
        >>> study.fusion.record(verdict, "why.json", variant="fp16").name
        'why.json'
        """
        text = create_record(self._holder.result(variant), answer).text()
        return files.write(path, text.encode(), what="the record", model=self._holder.state.model)

    def _explain_layer(
        self, facts: VariantResult, node: str, budget: Budget, *, again: bool, progress: Progress | None
    ) -> FusedLayer:
        """Why the nodes of a layer are one, from the cache or by experiment."""
        search = FusionSplitSearch(facts.prepared.model, facts.engine, facts.variant, find_layer(facts, node))
        builder = get_builder(facts)
        before = None if again else load_fusion_explanation(facts, search.layer, search.nodes)
        if before is not None:
            self._holder.publish(lambda state: _with_explanation(state, facts.name, before))
            return before
        with report_progress(progress) as reporter:
            explanation = self._runner.search(
                search,
                WorkContext(builder, reporter, budget),
                lambda state, answer: _with_explanation(state, facts.name, answer),
            )
        save_answer(facts, explanation)
        return explanation

    def _side(self, name: str, progress: Progress) -> BisectionSide:
        """A variant as a bisection takes it, built where it is not yet."""
        if name not in self._holder.state.results:
            with contextlib.suppress(BackendError):
                self._runner.run([name], progress=progress, compare=False)
        variant, facts = self._holder.state.variants[name], self._holder.state.results.get(name)
        if facts is None:
            model = self._runner.prepare(name, progress=progress).model
            compiler: Builder = require_capability(variant.backend or "", "builds", "build")
            backend = backends.get(variant.backend or "")
            release = f"{backend.capabilities().maker.title} {backend.availability().version}"
            error_text = str(self._holder.state.failures[name])
            return BisectionSide(f"{release} · {variant.target}", model, variant, compiler, None, error_text)
        return BisectionSide(
            facts.engine.title, facts.prepared.model, facts.variant, find_builder(facts), facts
        )


def _with_verdict(state: StudyState, variant: str, verdict: Verdict) -> StudyState:
    return state.with_entries(verdicts={variant: {(verdict.first, verdict.second): verdict}})


def _with_explanation(state: StudyState, variant: str, explanation: FusedLayer) -> StudyState:
    return state.with_entries(fusion_explanations={variant: {explanation.layer: explanation}})


def folder() -> Path:
    """The folder of ``RTLAB_RECORDS``, else ``verdicts`` of the user's cache."""
    import platformdirs

    default = platformdirs.user_cache_path("rtlab", appauthor=False) / "verdicts"
    return Path(os.environ.get("RTLAB_RECORDS") or default)


def create_record(facts: VariantResult, answer: Verdict | FusedLayer) -> VerdictRecord | StepRecord:
    """An answer with all that it depends on.

    Raises:
        ModelError: the model is too large to be identified by its bytes, or its weights cannot be read any more.
    """
    engine, variant = facts.engine, facts.variant
    identity = (
        facts.source.name,
        facts.prepared.model.digest,
        variant.name,
        "" if variant.options is None else str(variant.options),
        engine.backend,
        engine.version,
        str(engine.target),
    )
    if isinstance(answer, FusedLayer):
        return StepRecord(*identity, dataclasses.replace(answer, recalled=False))
    return VerdictRecord(*identity, dataclasses.replace(answer, recalled=False))


def load_verdict(facts: VariantResult, first: str, second: str) -> Verdict | None:
    """An earlier verdict on two nodes of this model, with this compiler, release, target and options."""
    record = _load(facts, Verdict(first, second, "unknown"))
    return dataclasses.replace(record.verdict, recalled=True) if isinstance(record, VerdictRecord) else None


def load_fusion_explanation(facts: VariantResult, layer: str, nodes: tuple[str, ...]) -> FusedLayer | None:
    """An earlier explanation of the layer that does the work of these nodes, which is this layer now."""
    record = _load(facts, FusedLayer(layer, nodes, None, ""))
    if isinstance(record, StepRecord):
        return dataclasses.replace(record.step, layer=layer, recalled=True)
    return None


def _load(facts: VariantResult, query: Verdict | FusedLayer) -> VerdictRecord | StepRecord | None:
    with contextlib.suppress(OSError, RtlabError, ValueError):
        query_record = create_record(facts, query)
        cached_record = read(_path(query_record).read_text("utf-8"))
        if _key(cached_record) == _key(query_record):
            return cached_record
    return None


def save_answer(facts: VariantResult, answer: Verdict | FusedLayer) -> None:
    """Write an answer into the cache, where it is conclusive and the folder can be written to."""
    is_conclusive = answer.whole if isinstance(answer, FusedLayer) else answer.verdict != "unknown"
    if not is_conclusive or answer.recalled or not answer.builds:
        return
    with contextlib.suppress(OSError, RtlabError):
        record = create_record(facts, answer)
        path = _path(record)
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write(path, record.text().encode(), what="a verdict")


def _key(record: VerdictRecord | StepRecord) -> tuple[str, ...]:
    # TF32 and 2:4 are flags of the builder: the same graph is built with them and without.
    identity = (record.digest, record.variant, record.options, record.backend, record.version, record.target)
    return (*identity, *record.about)


def _path(record: VerdictRecord | StepRecord) -> Path:
    name = hashlib.sha256("\0".join(_key(record)).encode()).hexdigest()
    return folder() / f"{name[:32]}.json"
