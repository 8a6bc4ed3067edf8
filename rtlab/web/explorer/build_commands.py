"""What the Explorer's buttons make: variants of a choice, and what is found by building and running many times."""

from __future__ import annotations

import collections.abc
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

from rtlab.analyses.score.flips import parse_sample_numbers
from rtlab.backends import compilers
from rtlab.backends.selection import get_additional_backend
from rtlab.core.budget import BUDGET_S, parse_budget
from rtlab.core.progress import Reporting
from rtlab.core.ptq_transform import PtqTransform
from rtlab.core.variant import Calibrator, Precision, Variant
from rtlab.documents.commands import Pin, StartWork, WorkName
from rtlab.errors import Cancelled, RtlabError, VariantError
from rtlab.study.session import Session
from rtlab.web.explorer.view_sync import ViewSync
from rtlab.web.page import controls as offer
from rtlab.web.page.table import describe_failure

#: What the buttons of panels try, continuing "Cannot".
WORKS: dict[WorkName, str] = {
    "sweep": "time the batch sizes",
    "rebuild": "build the variations",
    "tune": "tune the model",
    "peaks": "measure this processor",
    "why": "ask the compiler",
    "advise": "ask about all missed fusions",
    "remedy": "build the remedy",
    "sensitivity": "measure sensitivity",
    "only": "choose samples",
    "diagnose": "look for what costs accuracy",
    "channels": "measure the channels",
    "treat": "build the change",
    "repair": "look for a repair",
    "bisect": "look for what changed",
}
#: What ``choose`` takes.
_CHOICES = ("precision", "calibrator", "target", "weights", "sparsity", "treatments", "compiler")


class _Values(dict[str, str]):
    """What goes with the button of a panel; one that lacks is said in words."""

    def __missing__(self, name: str) -> str:
        raise VariantError(
            f'Cannot do what the button says: the page sent no "{name}" with it. Reload the page.'
        )


class BuildCommands:
    """Chooses, builds and measures variants of the study that a view shows."""

    def __init__(self, view: ViewSync) -> None:
        self.view, self.widget, self.tasks = view, view.widget, view.tasks

    @property
    def study(self) -> Session:
        """The study on screen."""
        return self.view.study

    def run(self, **choice: Any) -> None:
        """Build the chosen variant: see ``Explorer.run``.

        Raises:
            VariantError: there is no such choice.
        """
        if choice:
            self.choose(**choice)
        with self.widget.lock:
            if self.tasks.busy:
                if choice:
                    self.tasks.next = functools.partial(self.run, **choice)
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

    def choose(self, **choice: Any) -> None:
        """Choose without building: see ``Explorer.choose``.

        Raises:
            VariantError: there is no such choice.
        """
        if unknown := set(choice) - {*_CHOICES}:
            raise VariantError(
                f'Cannot choose "{min(unknown)}": the Explorer chooses {", ".join(_CHOICES[:-1])} and {_CHOICES[-1]}.'
            )
        normalized_choice = {**choice}
        if release := normalized_choice.pop("compiler", None):
            normalized_choice["backend"] = compilers.named(release).backend
        if isinstance(normalized_choice.get("precision"), collections.abc.Mapping):
            table = {str(k): str(v) for k, v in normalized_choice.pop("precision").items()}
            normalized_choice["precision"] = table.pop("*", str(Precision.FP32))
            normalized_choice["pins"] = [Pin(pattern=k, precision=v) for k, v in table.items()]
        sparse = normalized_choice.get("sparsity")
        if sparse is not None and not isinstance(sparse, list):
            normalized_choice["sparsity"] = list(Variant.of(sparsity=sparse).sparsity)
        if (treatments := normalized_choice.get("treatments")) is not None:
            treatment_list = [treatments] if isinstance(treatments, (str, PtqTransform)) else treatments
            normalized_choice["treatments"] = [str(PtqTransform.of(t)) for t in treatment_list]
        for name in {"precision", "calibrator", "target", "weights"} & set(normalized_choice):
            normalized_choice[name] = str(normalized_choice[name] or "")
        self.widget.choice = {**self.widget.choice, **normalized_choice}

    def measure(self, name: str | None = None) -> None:
        """Go on measuring a variant: see ``Explorer.measure``."""
        name = name or self.view.state.variant
        self._require_variant(name)
        if not self.tasks.busy:
            self.widget.failure = None
            self.tasks.start(lambda progress: self._measure(name, progress), f'measure "{name}"')

    def check_choice(self, _change: Any) -> None:
        """Put a changed choice right, and show what can be chosen beside it."""
        precision = next((p for p in Precision if p.value == self.widget.choice.get("precision")), None)
        if precision is not None:
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
        calibrator = str(variant.calibrator or "")
        treatments = [str(t) for t in variant.treatments]
        if calibrator != self.widget.choice["calibrator"] or treatments != self.widget.choice.get(
            "treatments", []
        ):
            self.widget.choice = {**self.widget.choice, "calibrator": calibrator, "treatments": treatments}

    def check_shapes(self) -> None:
        """Raise ``Unsized`` where the model lacks sizes: a build that cannot be is no variant that failed."""
        for name in self.study.model.inputs:
            self.study.model.input_shape(name)

    def plan_variant(self) -> str:
        """The name of the variant that the choice asks for, added to the study when it is new."""
        requested_variant = offer.choice_to_variant(self.widget.choice)
        study = self.study.state
        for name, variant in study.variants.items():
            if not self.view.is_recorded(name) and (
                dataclasses.replace(variant, backend=get_additional_backend(variant.backend))
                == requested_variant
            ):
                return name
        self.study.add(
            requested_variant.id,
            precision={"*": requested_variant.precision, **dict(requested_variant.pins)},
            calibrator=requested_variant.calibrator,
            target=requested_variant.target,
            weights=requested_variant.weights,
            sparsity=requested_variant.sparsity,
            treatments=requested_variant.treatments,
            backend=requested_variant.backend,
        )
        return requested_variant.id

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
        finally:
            # What a stopped calibration saw is kept, and shown.
            self.view.send_calibration()

    @property
    def _budget(self) -> float:
        """Seconds that measuring may take, as chosen in the settings."""
        return parse_budget(self.view.state.settings.get("run.budget_s", BUDGET_S))

    def _measure(self, name: str, progress: Reporting) -> None:
        self.tasks.building = name
        # Whoever only compiles and then asks for numbers wants some.
        self.study.measure(name, progress=progress, budget_s=self._budget or BUDGET_S)

    def observe(self, work: Callable[..., object], progress: Reporting) -> None:
        """Do work that observes activations; what a stopped one saw is shown."""
        try:
            work(progress=progress)
        finally:
            self.view.send_calibration()

    def vary(self, name: str, what: str, progress: Reporting) -> None:
        """Build the variants that differ from one in a single choice."""
        # Targets and options change nothing of what the CPU runs.
        # What another release refuses is an answer about it, which its chip and the table tell.
        self._build_variants(
            self.study.vary(name, what),
            progress,
            compare=what in {"tf32", "sparsity", "pairs"},
            refusals=what == "compilers",
        )

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
            # What nobody built was only planned by the button.
            for title in titles:
                if title not in self.study and title not in self.study.state.failures:
                    self.study.remove(title)
        if built_titles := [t for t in titles if t in self.study]:
            self.view.show(built_titles[-1])
        if first_error is not None and not refusals:
            raise first_error

    def tune(self, values: collections.abc.Mapping[str, str], progress: Reporting) -> None:
        """Tune the model on this CPU, as the values of a button say."""
        budget_text = values.get("budget_s")
        options: dict[str, Any] = {"budget_s": parse_budget(budget_text)} if budget_text else {}
        self.study.tuning.tune(progress=progress, **options)

    def _ask_why(self, values: collections.abc.Mapping[str, str], variant: str, progress: Reporting) -> None:
        pair = (values.get("first", ""), values.get("second", ""))
        state = self.study.state
        is_answered = values.get("layer") in state.fusion_explanations.get(
            variant, {}
        ) or pair in state.verdicts.get(variant, {})
        if is_answered and values.get("unless") == "known":
            return
        if "layer" in values:
            self.study.fusion.why(values["layer"], variant=variant, progress=progress)
        else:
            self.study.fusion.why(*pair, variant=variant, again=is_answered, progress=progress)

    def _rank_sensitivity(
        self, values: collections.abc.Mapping[str, str], variant: str, progress: Reporting
    ) -> None:
        options: dict[str, Any] = {k: values[k] for k in ("asks", "by", "loss") if k in values}
        self.study.accuracy.sensitivity(variant, progress=progress, **options)

    def _diagnose(self, values: collections.abc.Mapping[str, str], variant: str, progress: Reporting) -> None:
        if values.get("unless") != "known" or variant not in self.study.state.diagnoses:
            self.study.accuracy.diagnose(variant, progress=progress)

    def _repair_accuracy(self, variant: str, progress: Reporting) -> None:
        """Look for a repair, and show the variant that it leads to."""
        repair = self.study.accuracy.repair(variant, progress=progress)
        if repair.changes:
            self._build_variants([repair.repaired], progress, compare=True)

    def _bisect(self, values: collections.abc.Mapping[str, str], variant: str, progress: Reporting) -> None:
        seconds = parse_budget(values.get("seconds") or BUDGET_S)
        self.study.fusion.bisect(values.get("from", ""), variant, seconds=seconds, progress=progress)

    def start_panel_work(self, command: StartWork) -> None:
        """Do what a button of a panel says.

        Raises:
            VariantError: there is no such variant.
        """
        self._require_variant(command.variant)
        values, variant = _Values(command.values), command.variant
        # A choice of several, or one option with its value.
        what = values.get("what") or "=".join(next(iter(values.items()), ("", "")))
        works: dict[WorkName, Callable[[Reporting], object]] = {
            "sweep": lambda progress: self.study.tuning.batch_sizes(variant, progress=progress),
            "rebuild": lambda progress: self.vary(variant, what, progress),
            "tune": lambda progress: self.tune(values, progress),
            "peaks": lambda progress: self.study.tuning.peaks(progress=progress),
            "why": lambda progress: self._ask_why(values, variant, progress),
            "advise": lambda progress: self.study.fusion.advise(variant, progress=progress),
            "sensitivity": lambda progress: self._rank_sensitivity(values, variant, progress),
            "bisect": lambda progress: self._bisect(values, variant, progress),
            "remedy": lambda progress: self._build_variants(
                [self.study.fusion.suggest_edit(variant, values["rewrites"].split("\n"))],
                progress,
                compare=True,
            ),
            "only": lambda progress: self._select_samples(values.get("samples", ""), progress),
            "channels": lambda progress: self.study.accuracy.channels(
                variant, values["value"], progress=progress
            ),
            "diagnose": lambda progress: self._diagnose(values, variant, progress),
            "treat": lambda progress: self._build_variants(
                [self.study.calibration.transform(variant, values["cause"])], progress, compare=True
            ),
            "repair": lambda progress: self._repair_accuracy(variant, progress),
        }
        self.tasks.start(works[command.work], WORKS[command.work])

    def _select_samples(self, samples: str, progress: Reporting) -> None:
        """Show the samples with these numbers alone, all where there is none."""
        self.study.accuracy.use_samples(
            parse_sample_numbers(samples) or None, budget_s=self._budget or BUDGET_S, progress=progress
        )

    def rebuild(self, name: str) -> None:
        """Build a variant again.

        Raises:
            VariantError: there is no such variant, or other work is under way.
        """
        variant = self._require_variant(name)
        self.tasks.check_idle(f'Cannot build "{name}" again')
        self.widget.choice = offer.build_choice(self.study.model, variant)
        self.widget.failure = None
        self.tasks.start(
            lambda progress: self.build(name, progress, again=True), f'build "{name}" again', name
        )

    def remove(self, name: str) -> None:
        """Forget a variant.

        Raises:
            VariantError: it is being built.
        """
        if name == self.tasks.building:
            self.tasks.check_idle(f'Cannot remove "{name}"')
        if self.view.baseline == name:
            self.view.baseline = ""
        self.study.remove(name)
        self.view.sync()

    def set_baseline(self, name: str) -> None:
        """Compare the others with this variant.

        Raises:
            VariantError: there is no such variant.
        """
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
