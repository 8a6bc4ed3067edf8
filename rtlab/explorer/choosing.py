"""What the Explorer's buttons make: variants of a choice, and what is found by building and running many times."""

from __future__ import annotations

import collections.abc
import dataclasses
import functools
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rtlab.backends import compilers
from rtlab.backends.choosing import beside
from rtlab.core.progress import Reporting
from rtlab.core.stage import BUDGET_S, budget_of
from rtlab.core.treatment import Treatment
from rtlab.core.variant import Calibrator, Precision, Variant
from rtlab.documents.commands import Pin, StartWork, WorkName
from rtlab.documents.contract import FileSent
from rtlab.errors import Cancelled, RtlabError, VariantError
from rtlab.explorer.showing import Showing
from rtlab.questions.bisection import report
from rtlab.questions.score.pictures import numbered
from rtlab.view import controls as offer
from rtlab.view.table import failure

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
    "bugreport": "save the files of what changed",
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
        with self._turn:
            if self._busy:
                if choice:
                    self._next = functools.partial(self.run, **choice)
                return self
        self.failure = None
        try:
            if not self.study.model.nodes:
                raise VariantError(f"Cannot build: {offer.NO_MODEL[0].lower()}{offer.NO_MODEL[1:]}.")
            self._check_sized()
            name = self._planned()
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
        given = {**choice}
        if release := given.pop("compiler", None):
            given["backend"] = compilers.named(release).backend
        if isinstance(given.get("precision"), collections.abc.Mapping):
            table = {str(k): str(v) for k, v in given.pop("precision").items()}
            given["precision"] = table.pop("*", str(Precision.FP32))
            given["pins"] = [Pin(pattern=k, precision=v) for k, v in table.items()]
        sparse = given.get("sparsity")
        if sparse is not None and not isinstance(sparse, list):
            given["sparsity"] = list(Variant.of(sparsity=sparse).sparsity)
        if (treatments := given.get("treatments")) is not None:
            asked = [treatments] if isinstance(treatments, (str, Treatment)) else treatments
            given["treatments"] = [str(Treatment.of(t)) for t in asked]
        for name in {"precision", "calibrator", "target", "weights"} & set(given):
            given[name] = str(given[name] or "")
        self.choice = {**self.choice, **given}
        return self

    def measure(self, name: str | None = None) -> Self:
        """Go on measuring a variant where it stopped, the one shown by default, on a thread: see ``Study.measure``."""
        name = name or self.state.variant
        self._check_known(name)
        if not self._busy:
            self.failure = None
            self._start(lambda progress: self._measure(name, progress), f'measure "{name}"')
        return self

    def calibrate(self) -> Self:
        """Gather the activations' ranges on a thread, for the Calibration tab; cancelling keeps what was seen."""
        return self._work(functools.partial(self._seen, self.study.observe), "calibrate")

    def rank(self) -> Self:
        """Try every calibrator on the task, on a thread."""
        return self._work(functools.partial(self._seen, self.study.rank), "rank the calibrators")

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

    def _chosen(self, _change: Any) -> None:
        chosen = next((p for p in Precision if p.value == self.choice.get("precision")), None)
        if chosen is not None:
            self._settle()
        self.controls = dict(offer.controls(self.study.model, self.choice))

    def _settle(self) -> None:
        """Give the choice the calibrator that it lacks, or take away one, and treatments, that nothing needs."""
        try:
            wanted = offer.wanted(self.choice)
        except RtlabError:
            # Choosing it says what is wrong; a calibrator that was typed is put right at once.
            try:
                Calibrator.of(self.choice["calibrator"] or Calibrator.AUTO)
            except RtlabError as error:
                self.failure = dict(failure(error))
                self.choice = {**self.choice, "calibrator": str(Calibrator.AUTO)}
            return
        calibrator = str(wanted.calibrator or "")
        treatments = [str(t) for t in wanted.treatments]
        if calibrator != self.choice["calibrator"] or treatments != self.choice.get("treatments", []):
            self.choice = {**self.choice, "calibrator": calibrator, "treatments": treatments}

    def _check_sized(self) -> None:
        """Raise ``Unsized`` where the model lacks sizes: a build that cannot be is no variant that failed."""
        for name in self.study.model.inputs:
            self.study.model.input_shape(name)

    def _planned(self) -> str:
        """The name of the variant that the choice asks for, added to the study when it is new."""
        wanted = offer.wanted(self.choice)
        study = self.study.snapshot()
        for name, variant in study.variants.items():
            if not self._is_recorded(name) and (
                dataclasses.replace(variant, backend=beside(variant.backend)) == wanted
            ):
                return name
        self.study.add(
            wanted.id,
            precision={"*": wanted.precision, **dict(wanted.pins)},
            calibrator=wanted.calibrator,
            target=wanted.target,
            weights=wanted.weights,
            sparsity=wanted.sparsity,
            treatments=wanted.treatments,
            backend=wanted.backend,
        )
        return wanted.id

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
        return budget_of(self.state.settings.get("run.budget_s", BUDGET_S))

    def _measure(self, name: str, progress: Reporting) -> None:
        self._building = name
        # Whoever only compiles and then asks for numbers wants some.
        self.study.measure(name, progress=progress, budget_s=self._budget or BUDGET_S)

    def _seen(self, work: Callable[..., object], progress: Reporting) -> None:
        try:
            work(progress=progress)
        finally:
            # What a stopped one saw is kept, and shown.
            self._tell_calibration()

    def _vary(self, name: str, what: str, progress: Reporting) -> None:
        # Targets and options change nothing of what the CPU runs.
        # What another release refuses is an answer about it, which its chip and the table tell.
        self._derived(
            self.study.vary(name, what),
            progress,
            compare=what in {"tf32", "sparsity", "pairs"},
            refusals=what == "compilers",
        )

    def _derived(
        self, planned: Sequence[str], progress: Reporting, *, compare: bool, refusals: bool = False
    ) -> None:
        """Build variants that were derived from another, and show the last; ``refusals`` are no failure of the work."""
        failed: RtlabError | None = None
        try:
            for title in planned:
                self._building = title
                self._refresh(building=title)
                try:
                    self.study.run([title], progress=progress, compare=compare)
                except Cancelled:
                    raise
                except RtlabError as error:
                    failed = failed or error
        finally:
            # What nobody built was only planned by the button.
            for title in planned:
                if title not in self.study.facts and title not in self.study.failures:
                    self.study.remove(title)
        if built := [t for t in planned if t in self.study.facts]:
            self.show(built[-1])
        if failed is not None and not refusals:
            raise failed

    def _tune(self, values: collections.abc.Mapping[str, str], progress: Reporting) -> None:
        if node := values.get("recurrence"):
            self.study.time_forms(node, progress=progress)
        else:
            told = values.get("budget_s")
            given: dict[str, Any] = {"budget_s": budget_of(told)} if told else {}
            self.study.tune(progress=progress, **given)

    def _ask_why(self, values: collections.abc.Mapping[str, str], variant: str, progress: Reporting) -> None:
        pair = (values.get("first", ""), values.get("second", ""))
        snapshot = self.study.snapshot()
        known = values.get("layer") in snapshot.joined.get(variant, {}) or pair in snapshot.verdicts.get(
            variant, {}
        )
        if known and values.get("unless") == "known":
            return
        if "layer" in values:
            self.study.why(values["layer"], variant=variant, progress=progress)
        else:
            self.study.why(*pair, variant=variant, again=known, progress=progress)

    def _look(self, values: collections.abc.Mapping[str, str], variant: str, progress: Reporting) -> None:
        given: dict[str, Any] = {k: values[k] for k in ("asks", "by", "loss") if k in values}
        self.study.sensitivity(variant, progress=progress, **given)

    def _diagnose(self, values: collections.abc.Mapping[str, str], variant: str, progress: Reporting) -> None:
        if values.get("unless") != "known" or variant not in self.study.snapshot().diagnoses:
            self.study.diagnose(variant, progress=progress)

    def _repair_accuracy(self, variant: str, progress: Reporting) -> None:
        """Look for a repair, and show the variant that it leads to."""
        found = self.study.repair(variant, progress=progress)
        if found.changes:
            self._derived([found.repaired], progress, compare=True)

    def _bisect(self, values: collections.abc.Mapping[str, str], variant: str, progress: Reporting) -> None:
        seconds, again = budget_of(values.get("seconds") or BUDGET_S), bool(values.get("again"))
        self.study.bisect(values.get("from", ""), variant, seconds=seconds, again=again, progress=progress)

    def _report_changes(self, other: str, variant: str) -> None:
        """Send the text for a bug report, the parts and their logs."""
        study = self.study.snapshot()
        found = study.bisections.get((other, variant))
        if found is None:
            raise VariantError(
                f'Nobody looked for what changed from "{other}" to "{variant}" yet. Look first.'
            )
        name = re.sub(r"[^\w.+-]+", "-", f"{study.model.name}-{other}-{variant}").strip("-")
        self._tell(FileSent(f"{name}-changes.zip"), report.packed(found, study.model))

    def _worked(self, asked: StartWork) -> None:
        self._check_known(asked.variant)
        values, variant = _Values(asked.values), asked.variant
        # A choice of several, or one option with its value.
        what = values.get("what") or "=".join(next(iter(values.items()), ("", "")))
        works: dict[WorkName, Callable[[Reporting], object]] = {
            "sweep": lambda progress: self.study.sweep(variant, progress=progress),
            "rebuild": lambda progress: self._vary(variant, what, progress),
            "tune": lambda progress: self._tune(values, progress),
            "peaks": lambda progress: self.study.measure_peaks(progress=progress),
            "why": lambda progress: self._ask_why(values, variant, progress),
            "advise": lambda progress: self.study.advise(variant, progress=progress),
            "sensitivity": lambda progress: self._look(values, variant, progress),
            "bisect": lambda progress: self._bisect(values, variant, progress),
            "bugreport": lambda _: self._report_changes(values.get("from", ""), variant),
            "remedy": lambda progress: self._derived(
                [self.study.remedy(variant, values["rewrites"].split("\n"))], progress, compare=True
            ),
            "only": lambda progress: self._only(values.get("samples", ""), progress),
            "channels": lambda progress: self.study.channels(variant, values["value"], progress=progress),
            "diagnose": lambda progress: self._diagnose(values, variant, progress),
            "treat": lambda progress: self._derived(
                [self.study.treat(variant, values["cause"])], progress, compare=True
            ),
            "repair": lambda progress: self._repair_accuracy(variant, progress),
        }
        self._work(works[asked.work], _WORKS[asked.work])

    def _only(self, samples: str, progress: Reporting) -> None:
        """Show the samples with these numbers alone, all where there is none."""
        self.study.only(numbered(samples) or None, budget_s=self._budget or BUDGET_S, progress=progress)

    def _rebuild(self, name: str) -> None:
        variant = self._check_known(name)
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
        self._catch_up()

    def _rebase(self, name: str) -> None:
        self._check_known(name)
        self._baseline = name
        self._refresh()

    def _check_known(self, name: str) -> Variant:
        found = self.study.variants.get(name)
        if found is None:
            raise VariantError(
                f'Cannot use variant "{name}": the study has none of this name. Choose another.'
            )
        return found
