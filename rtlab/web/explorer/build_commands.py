"""What the Explorer's buttons make: variants of a choice, and what is found by building and running many times."""

from __future__ import annotations

import collections.abc
import dataclasses
from collections.abc import Sequence
from typing import Any

from rtlab.analyses.score import parse_sample_numbers
from rtlab.backends.selection import get_additional_backend
from rtlab.core.budget import BUDGET_S, parse_budget
from rtlab.core.progress import Reporting
from rtlab.core.variant import Calibrator, Precision, Variant
from rtlab.documents.commands import StartWork
from rtlab.errors import Cancelled, RtlabError, VariantError
from rtlab.study.session import Session
from rtlab.web.explorer.view_sync import ViewSync
from rtlab.web.page import controls as offer
from rtlab.web.page.table import describe_failure


class BuildCommands:
    """Chooses, builds and measures variants of the study that a view shows."""

    def __init__(self, view: ViewSync) -> None:
        self.view, self.widget, self.tasks = view, view.widget, view.tasks

    @property
    def study(self) -> Session:
        """The study on screen."""
        return self.view.study

    def run(self) -> None:
        """Build the chosen variant: see ``Explorer.run``."""
        if self.tasks.busy:
            return
        self.widget.failure = None
        try:
            if not self.study.model.nodes:
                raise VariantError(f"Cannot build: {offer.NO_MODEL[0].lower()}{offer.NO_MODEL[1:]}.")
            self.check_shapes()
            name = self.plan_variant()
        except RtlabError as error:
            self.widget.failure = dict(describe_failure(error))
            return
        if name in self.study and not self.study.state.is_outdated(name):
            self.view.show(name)
            return
        self.tasks.start(lambda progress: self.build(name, progress), f'build "{name}"', name)

    def measure(self, name: str | None = None) -> None:
        """Go on measuring a variant: see ``Study.measure``."""
        name = name or self.view.state.variant
        self._require_variant(name)
        if not self.tasks.busy:
            self.widget.failure = None
            self.tasks.start(lambda progress: self._measure(name, progress), f'measure "{name}"')

    def check_choice(self, _change: Any) -> None:
        """Put a changed choice right, and show what can be chosen beside it."""
        if any(p.value == self.widget.choice.get("precision") for p in Precision):
            self._normalize_choice()
        self.widget.controls = dict(offer.build_controls(self.study.model, self.widget.choice))

    def _normalize_choice(self) -> None:
        """Give the choice the calibrator that it lacks, or take away one, and treatments, that nothing needs."""
        try:
            variant = offer.choice_to_variant(self.widget.choice)
        except RtlabError:
            # Choosing it says what is wrong; a calibrator that was typed is put right at once.
            try:
                Calibrator.of(self.widget.choice["calibrator"] or Calibrator.AUTO)
            except RtlabError as error:
                self.widget.failure = dict(describe_failure(error))
                self.widget.choice = {**self.widget.choice, "calibrator": str(Calibrator.AUTO)}
            return
        treatments = [str(t) for t in variant.treatments]
        normalized = {"treatments": treatments, "calibrator": str(variant.calibrator or "")}
        # A trait that does not change is not sent.
        self.widget.choice = {**self.widget.choice, **normalized}

    def check_shapes(self) -> None:
        """Raise ``Unsized`` where the model lacks sizes: a build that cannot be is no variant that failed."""
        for name in self.study.model.inputs:
            self.study.model.input_shape(name)

    def plan_variant(self) -> str:
        """The name of the chosen variant, which is added to the study when it is new."""
        requested = offer.choice_to_variant(self.widget.choice)
        for name, variant in self.study.state.variants.items():
            planned = dataclasses.replace(variant, backend=get_additional_backend(variant.backend))
            if planned == requested and not self.view.is_recorded(name):
                return name
        self.study.add(
            requested.id,
            precision={"*": requested.precision, **dict(requested.pins)},
            calibrator=requested.calibrator,
            target=requested.target,
            weights=requested.weights,
            sparsity=requested.sparsity,
            treatments=requested.treatments,
            backend=requested.backend,
        )
        return requested.id

    def build(self, name: str, progress: Reporting, *, again: bool = False) -> None:
        """Build and measure a planned variant."""
        self.tasks.building = name
        try:
            self.study.run([name], progress=progress, budget_s=self._budget, again=again)
        except Cancelled:
            # What was compiled stays, and with it what was measured; a variant of which nothing is there does not.
            if name not in self.study:
                self.study.remove(name)
            raise

    @property
    def _budget(self) -> float:
        """Seconds that measuring may take, as chosen in the settings."""
        return parse_budget(self.view.state.settings.get("run.budget_s", BUDGET_S))

    def _measure(self, name: str, progress: Reporting) -> None:
        self.tasks.building = name
        # After a build without measurements, numbers are requested.
        self.study.measure(name, progress=progress, budget_s=self._budget or BUDGET_S)

    def _vary(self, name: str, what: str, progress: Reporting) -> None:
        """Build the variants that differ from one in a single choice."""
        # Targets and options change nothing of what the CPU runs. What another release refuses is an answer about it,
        # which its chip and the table show.
        compare, refusals = what in {"tf32", "sparsity", "pairs"}, what == "compilers"
        self._build_variants(self.study.vary(name, what), progress, compare=compare, refusals=refusals)

    def _build_variants(
        self, titles: Sequence[str], progress: Reporting, *, compare: bool, refusals: bool = False
    ) -> None:
        """Build variants that were derived from another, and show the last; ``refusals`` are no failure of the work."""
        first_error: RtlabError | None = None
        try:
            for title in titles:
                self.tasks.building = title
                self.view.refresh(building=title)
                try:
                    self.study.run([title], progress=progress, compare=compare)
                except Cancelled:
                    raise
                except RtlabError as error:
                    first_error = first_error or error
        finally:
            # What was not built was only planned by the button.
            for title in titles:
                if title not in self.study and title not in self.study.state.failures:
                    self.study.remove(title)
        if built_titles := [t for t in titles if t in self.study]:
            self.view.show(built_titles[-1])
        if first_error is not None and not refusals:
            raise first_error

    def _ask_why(self, values: collections.abc.Mapping[str, str], variant: str, progress: Reporting) -> None:
        pair = (values.get("first", ""), values.get("second", ""))
        state = self.study.state
        layers, verdicts = state.fusion_explanations.get(variant, {}), state.verdicts.get(variant, {})
        is_answered = values.get("layer") in layers or pair in verdicts
        if is_answered and values.get("unless") == "known":
            return
        if "layer" in values:
            self.study.fusion.why(values["layer"], variant=variant, progress=progress)
        else:
            self.study.fusion.why(*pair, variant=variant, again=is_answered, progress=progress)

    def start_panel_work(self, command: StartWork) -> None:
        """Do what a button of a panel says, on a thread; ``VariantError`` where there is no such variant."""
        self._require_variant(command.variant)
        self.tasks.start(lambda progress: self._do_panel_work(command, progress), command.action)

    def _do_panel_work(self, command: StartWork, progress: Reporting) -> None:  # noqa: C901, PLR0912 - two lines each
        study, variant, values = self.study, command.variant, command.values
        match command.work:
            case "sweep":
                study.tuning.batch_sizes(variant, progress=progress)
            case "rebuild":
                # A choice of several, or one option with its value.
                self._vary(variant, values.get("what") or "=".join(next(iter(values.items()))), progress)
            case "tune":
                options: Any = {k: parse_budget(v) for k, v in values.items() if k == "budget_s"}
                study.tuning.tune(progress=progress, **options)
            case "peaks":
                study.tuning.peaks(progress=progress)
            case "why":
                self._ask_why(values, variant, progress)
            case "advise":
                study.fusion.advise(variant, progress=progress)
            case "bisect":
                seconds = parse_budget(values.get("seconds") or BUDGET_S)
                study.fusion.bisect(values["from"], variant, seconds=seconds, progress=progress)
            case "remedy":
                remedied = study.fusion.suggest_edit(variant, values["rewrites"].split("\n"))
                self._build_variants([remedied], progress, compare=True)
            case "only":
                study.accuracy.use_samples(
                    parse_sample_numbers(values.get("samples", "")) or None,
                    budget_s=self._budget or BUDGET_S,
                    progress=progress,
                )
            case "sensitivity":
                choices: Any = {k: values[k] for k in ("asks", "by", "loss") if k in values}
                study.accuracy.sensitivity(variant, progress=progress, **choices)
            case "channels":
                study.accuracy.channels(variant, values["value"], progress=progress)
            case "diagnose":
                if values.get("unless") != "known" or variant not in study.state.diagnoses:
                    study.accuracy.diagnose(variant, progress=progress)
            case "treat":
                treated = study.calibration.transform(variant, values["cause"])
                self._build_variants([treated], progress, compare=True)
            case "repair":
                repair = study.accuracy.repair(variant, progress=progress)
                if repair.changes:
                    self._build_variants([repair.repaired], progress, compare=True)

    def rebuild(self, name: str) -> None:
        """Build a variant again; ``VariantError`` where there is no such variant, or other work is under way."""
        variant = self._require_variant(name)
        self.tasks.check_idle(f'Cannot build "{name}" again')
        self.widget.choice = offer.build_choice(self.study.model, variant)
        self.widget.failure = None
        self.tasks.start(
            lambda progress: self.build(name, progress, again=True), f'build "{name}" again', name
        )

    def remove(self, name: str) -> None:
        """Forget a variant; ``VariantError`` where it is being built."""
        if name == self.tasks.building:
            self.tasks.check_idle(f'Cannot remove "{name}"')
        if self.view.baseline == name:
            self.view.baseline = ""
        self.study.remove(name)
        self.view.sync()

    def set_baseline(self, name: str) -> None:
        """Compare the others with this variant; ``VariantError`` where there is no such variant."""
        self._require_variant(name)
        self.view.baseline = name
        self.view.refresh()

    def _require_variant(self, name: str) -> Variant:
        variant = self.study.state.variants.get(name)
        if variant is None:
            raise VariantError(
                f'Cannot use variant "{name}": the study has none of this name. Choose another.'
            )
        return variant
