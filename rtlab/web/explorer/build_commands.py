"""What the Explorer's buttons make: variants of a choice, and what is found by building and running many times."""

from __future__ import annotations

import collections.abc
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rtlab.analyses.score.pictures import parse_sample_numbers
from rtlab.backends import compilers
from rtlab.backends.selection import get_additional_backend
from rtlab.core.budget import BUDGET_S, parse_budget
from rtlab.core.progress import Reporting
from rtlab.core.ptq_transform import PtqTransform
from rtlab.core.variant import Calibrator, Precision, Variant
from rtlab.documents.commands import Pin, StartWork, WorkName
from rtlab.errors import Cancelled, RtlabError, VariantError
from rtlab.web.explorer.view_sync import Showing
from rtlab.web.page import controls as offer
from rtlab.web.page.table import failure

if TYPE_CHECKING:
    from typing_extensions import Self

#: What the buttons of panels try, continuing "Cannot".
_WORKS: dict[WorkName, str] = {
    "sweep": "time the batch sizes",
    "rebuild": "build the variations",
    "tune": "tune the model",
    "peaks": "measure this processor",
    "why": "ask the compiler",
    "advise": "ask about all missed fusions",
    "remedy": "build the remedy",
    "sensitivity": "look for the guilty",
    "only": "choose samples",
    "diagnose": "look for what costs accuracy",
    "channels": "measure the channels",
    "treat": "build the change",
    "repair": "look for a repair",
    "bisect": "look for what changed",
}


class _Values(dict[str, str]):
    """What goes with the button of a panel; one that lacks is said in words."""

    def __missing__(self, name: str) -> str:
        raise VariantError(
            f'Cannot do what the button says: the page sent no "{name}" with it. Reload the page.'
        )


class Choosing(Showing):
    """Chooses, builds and measures."""

    def run(self, **choice: Any) -> Self:
        """Build the chosen variant on a thread and show it; one that is built comes back at once.

        What is chosen here while other work is under way, such as opening the model, is built after that.

        Args:
            choice: ``precision`` (one, or patterns with theirs, as ``Study.add`` takes it), ``calibrator``,
                ``target``, ``weights``, ``sparsity``, ``treatments`` and ``compiler`` (a release, such as 1.5) first.

        Raises:
            VariantError: there is no such choice.
        """
        if choice:
            self.choose(**choice)
        with self._view_lock:
            if self._busy:
                if choice:
                    self._next = functools.partial(self.run, **choice)
                return self
        self.failure = None
        try:
            if not self.study.model.nodes:
                raise VariantError(f"Cannot build: {offer.NO_MODEL[0].lower()}{offer.NO_MODEL[1:]}.")
            self._check_shapes()
            name = self._plan_variant()
        except RtlabError as error:
            self.failure = dict(failure(error))
            return self
        if name in self.study.facts and not self.study.outdated(name):
            self.show(name)
            return self
        self._start(lambda progress: self._build(name, progress), f'build "{name}"', name)
        return self

    def choose(self, **choice: Any) -> Self:
        """Choose without building; what was chosen before and is not named stays.

        Raises:
            VariantError: there is no such choice.
        """
        unknown = set(choice) - {
            "precision",
            "calibrator",
            "target",
            "weights",
            "sparsity",
            "treatments",
            "compiler",
        }
        if unknown:
            raise VariantError(
                f'Cannot choose "{min(unknown)}": the Explorer chooses precision, calibrator, target, weights, '
                "sparsity, treatments and compiler."
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
        self.choice = {**self.choice, **normalized_choice}
        return self

    def measure(self, name: str | None = None) -> Self:
        """Go on measuring a variant where it stopped, the one shown by default, on a thread: see ``Study.measure``."""
        name = name or self.state.variant
        self._require_variant(name)
        if not self._busy:
            self.failure = None
            self._start(lambda progress: self._measure(name, progress), f'measure "{name}"')
        return self

    def calibrate(self) -> Self:
        """Gather the activations' ranges on a thread, for the Calibration tab; cancelling keeps what was seen."""
        return self._work(functools.partial(self._run_observation, self.study.observe), "calibrate")

    def rank(self) -> Self:
        """Try every calibrator on the task, on a thread."""
        return self._work(functools.partial(self._run_observation, self.study.rank), "rank the calibrators")

    def sweep(self) -> Self:
        """Time the variant shown at several batch sizes, on a thread; cancelling keeps what was timed."""
        name = self.state.variant
        return self._work(lambda progress: self.study.sweep(name, progress=progress), _WORKS["sweep"])

    def vary(self, what: str) -> Self:
        """Build the variants that differ from the one shown in a single choice, on a thread: see ``Study.vary``."""
        name = self.state.variant
        return self._work(lambda progress: self._vary(name, what, progress), _WORKS["rebuild"])

    def tune(self) -> Self:
        """Tune the model's convolutions and products on this CPU, on a thread; cancelling keeps what was tuned."""
        return self._work(lambda progress: self._tune({}, progress), _WORKS["tune"])

    def _on_choice(self, _change: Any) -> None:
        precision = next((p for p in Precision if p.value == self.choice.get("precision")), None)
        if precision is not None:
            self._normalize_choice()
        self.controls = dict(offer.controls(self.study.model, self.choice))

    def _normalize_choice(self) -> None:
        """Give the choice the calibrator that it lacks, or take away one, and treatments, that nothing needs."""
        try:
            variant = offer.choice_to_variant(self.choice)
        except RtlabError:
            # Choosing it says what is wrong; a calibrator that was typed is put right at once.
            try:
                Calibrator.of(self.choice["calibrator"] or Calibrator.AUTO)
            except RtlabError as error:
                self.failure = dict(failure(error))
                self.choice = {**self.choice, "calibrator": str(Calibrator.AUTO)}
            return
        calibrator = str(variant.calibrator or "")
        treatments = [str(t) for t in variant.treatments]
        if calibrator != self.choice["calibrator"] or treatments != self.choice.get("treatments", []):
            self.choice = {**self.choice, "calibrator": calibrator, "treatments": treatments}

    def _check_shapes(self) -> None:
        """Raise ``Unsized`` where the model lacks sizes: a build that cannot be is no variant that failed."""
        for name in self.study.model.inputs:
            self.study.model.input_shape(name)

    def _plan_variant(self) -> str:
        """The name of the variant that the choice asks for, added to the study when it is new."""
        requested_variant = offer.choice_to_variant(self.choice)
        study = self.study.snapshot()
        for name, variant in study.variants.items():
            if not self._is_recorded(name) and (
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

    def _build(self, name: str, progress: Reporting, *, again: bool = False) -> None:
        self._building = name
        try:
            self.study.run([name], progress=progress, budget_s=self._budget, again=again)
        except Cancelled:
            # What was compiled stays, and with it what was measured; a variant of which nothing is there does not.
            if name not in self.study.facts:
                self.study.remove(name)
            raise
        finally:
            # What a stopped calibration saw is kept, and shown.
            self._tell_calibration()

    @property
    def _budget(self) -> float:
        """Seconds that measuring may take, as chosen in the settings."""
        return parse_budget(self.state.settings.get("run.budget_s", BUDGET_S))

    def _measure(self, name: str, progress: Reporting) -> None:
        self._building = name
        # Whoever only compiles and then asks for numbers wants some.
        self.study.measure(name, progress=progress, budget_s=self._budget or BUDGET_S)

    def _run_observation(self, work: Callable[..., object], progress: Reporting) -> None:
        try:
            work(progress=progress)
        finally:
            # What a stopped one saw is kept, and shown.
            self._tell_calibration()

    def _vary(self, name: str, what: str, progress: Reporting) -> None:
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
                self._building = title
                self._refresh(building=title)
                try:
                    self.study.run([title], progress=progress, compare=compare)
                except Cancelled:
                    raise
                except RtlabError as error:
                    first_error = first_error or error
        finally:
            # What nobody built was only planned by the button.
            for title in titles:
                if title not in self.study.facts and title not in self.study.failures:
                    self.study.remove(title)
        if built_titles := [t for t in titles if t in self.study.facts]:
            self.show(built_titles[-1])
        if first_error is not None and not refusals:
            raise first_error

    def _tune(self, values: collections.abc.Mapping[str, str], progress: Reporting) -> None:
        budget_text = values.get("budget_s")
        options: dict[str, Any] = {"budget_s": parse_budget(budget_text)} if budget_text else {}
        self.study.tune(progress=progress, **options)

    def _ask_why(self, values: collections.abc.Mapping[str, str], variant: str, progress: Reporting) -> None:
        pair = (values.get("first", ""), values.get("second", ""))
        snapshot = self.study.snapshot()
        is_answered = values.get("layer") in snapshot.fusion_explanations.get(
            variant, {}
        ) or pair in snapshot.verdicts.get(variant, {})
        if is_answered and values.get("unless") == "known":
            return
        if "layer" in values:
            self.study.why(values["layer"], variant=variant, progress=progress)
        else:
            self.study.why(*pair, variant=variant, again=is_answered, progress=progress)

    def _rank_sensitivity(
        self, values: collections.abc.Mapping[str, str], variant: str, progress: Reporting
    ) -> None:
        options: dict[str, Any] = {k: values[k] for k in ("asks", "by", "loss") if k in values}
        self.study.sensitivity(variant, progress=progress, **options)

    def _diagnose(self, values: collections.abc.Mapping[str, str], variant: str, progress: Reporting) -> None:
        if values.get("unless") != "known" or variant not in self.study.snapshot().diagnoses:
            self.study.diagnose(variant, progress=progress)

    def _repair_accuracy(self, variant: str, progress: Reporting) -> None:
        """Look for a repair, and show the variant that it leads to."""
        repair = self.study.repair(variant, progress=progress)
        if repair.changes:
            self._build_variants([repair.repaired], progress, compare=True)

    def _bisect(self, values: collections.abc.Mapping[str, str], variant: str, progress: Reporting) -> None:
        seconds = parse_budget(values.get("seconds") or BUDGET_S)
        self.study.bisect(values.get("from", ""), variant, seconds=seconds, progress=progress)

    def _start_panel_work(self, command: StartWork) -> None:
        self._require_variant(command.variant)
        values, variant = _Values(command.values), command.variant
        # A choice of several, or one option with its value.
        what = values.get("what") or "=".join(next(iter(values.items()), ("", "")))
        works: dict[WorkName, Callable[[Reporting], object]] = {
            "sweep": lambda progress: self.study.sweep(variant, progress=progress),
            "rebuild": lambda progress: self._vary(variant, what, progress),
            "tune": lambda progress: self._tune(values, progress),
            "peaks": lambda progress: self.study.measure_peaks(progress=progress),
            "why": lambda progress: self._ask_why(values, variant, progress),
            "advise": lambda progress: self.study.advise(variant, progress=progress),
            "sensitivity": lambda progress: self._rank_sensitivity(values, variant, progress),
            "bisect": lambda progress: self._bisect(values, variant, progress),
            "remedy": lambda progress: self._build_variants(
                [self.study.remedy(variant, values["rewrites"].split("\n"))], progress, compare=True
            ),
            "only": lambda progress: self._select_samples(values.get("samples", ""), progress),
            "channels": lambda progress: self.study.channels(variant, values["value"], progress=progress),
            "diagnose": lambda progress: self._diagnose(values, variant, progress),
            "treat": lambda progress: self._build_variants(
                [self.study.treat(variant, values["cause"])], progress, compare=True
            ),
            "repair": lambda progress: self._repair_accuracy(variant, progress),
        }
        self._work(works[command.work], _WORKS[command.work])

    def _select_samples(self, samples: str, progress: Reporting) -> None:
        """Show the samples with these numbers alone, all where there is none."""
        self.study.only(
            parse_sample_numbers(samples) or None, budget_s=self._budget or BUDGET_S, progress=progress
        )

    def _rebuild(self, name: str) -> None:
        variant = self._require_variant(name)
        self._check_idle(f'Cannot build "{name}" again')
        self.choice = offer.choice(self.study.model, variant)
        self.failure = None
        self._start(lambda progress: self._build(name, progress, again=True), f'build "{name}" again', name)

    def _remove(self, name: str) -> None:
        if name == self._building:
            self._check_idle(f'Cannot remove "{name}"')
        if self._baseline == name:
            self._baseline = ""
        self.study.remove(name)
        self._sync_with_study()

    def _set_baseline(self, name: str) -> None:
        self._require_variant(name)
        self._baseline = name
        self._refresh()

    def _require_variant(self, name: str) -> Variant:
        variant = self.study.variants.get(name)
        if variant is None:
            raise VariantError(
                f'Cannot use variant "{name}": the study has none of this name. Choose another.'
            )
        return variant
