"""What the Explorer opens (models, samples, files), builds of a choice, and finds by building and running."""

from __future__ import annotations

import collections.abc
import dataclasses
import itertools
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rtlab.analyses import panels
from rtlab.analyses.panel_context import PanelContext
from rtlab.analyses.score import parse_sample_numbers
from rtlab.backends.readers import build, recognise
from rtlab.backends.selection import get_additional_backend
from rtlab.core import model as _model
from rtlab.core import partial_shapes
from rtlab.core.budget import BUDGET_S, parse_budget
from rtlab.core.data import read_samples
from rtlab.core.inputs import read_input
from rtlab.core.model import Model
from rtlab.core.phrases import quote_names
from rtlab.core.progress import Reporting
from rtlab.core.variant import Calibrator, Precision, Variant
from rtlab.documents import glossary
from rtlab.documents.commands import ReadDropped, StartWork
from rtlab.documents.contract import Side, StudySaved
from rtlab.documents.numbers import format_number
from rtlab.documents.serialization import encode
from rtlab.errors import CalibrationError, Cancelled, ReadError, RtlabError, VariantError
from rtlab.study.session import Session
from rtlab.web.explorer.view_sync import ViewSync, is_large
from rtlab.web.page import controls as offer
from rtlab.web.page.graph import source_graph
from rtlab.web.page.state import ViewState
from rtlab.web.page.table import describe_failure


class OpenCommands:
    """Takes another study in place of the one on screen, or other samples and files into it.

    Args:
        builds: Builds variants of what is opened.
        folders: Folders whose files the page may open; Python opens any. By default those of the model and of the
            kernel.
    """

    def __init__(self, builds: BuildCommands, folders: tuple[Path, ...] | None) -> None:
        self.builds, self.view, self.widget, self.tasks = builds, builds.view, builds.widget, builds.tasks
        self._folders = folders
        #: The file that the study on screen was opened from or saved in last.
        self.file: Path | None = None

    @property
    def study(self) -> Session:
        """The study on screen."""
        return self.view.study

    def load(self, model: str | Path | bytes, *, name: str | None = None) -> None:
        """Open another model, or a file of an engine: see ``Explorer.load``."""
        if not self.tasks.busy:
            self.tasks.start(lambda progress: self._load(model, name, progress), "open the model")

    def use(self, data: Any) -> None:
        """Take other samples."""
        self.tasks.start(lambda progress: self._use(data, progress), "use the data")

    def open_from_page(self, path: str) -> None:
        """What the page names: a model by its name or path, or samples by theirs.

        The page may be served to other people than the owner of the kernel, who then read what is opened.
        """
        from rtlab import samples

        if path in samples.names():
            self.load(path)
            return
        try:
            file = Path(path).expanduser()
            self._check_folder(file)
        except (RuntimeError, ValueError) as error:
            # There is no such home folder, links are circular, or a name has an invalid character.
            raise ReadError(
                f'Cannot open "{path}" from the page: {error}. Name a file that is there.'
            ) from error
        if file.suffix.lower() in {".npz", ".npy"}:
            self.use(file)
        elif recognise.holds_study(file):
            # The model that it names may lie anywhere.
            allowed = self._list_folders()
            self.tasks.start(lambda p: self._open_study(file, p, allowed), "open the study")
        else:
            self.load(file)

    def _list_folders(self) -> tuple[Path, ...]:
        """The folders whose files the page may open."""
        model = self.study.model.path
        default = (Path.cwd(), *([model.parent] if model else []))
        return default if self._folders is None else self._folders

    def _check_folder(self, path: Path) -> None:
        folders = self._list_folders()
        if not any(path.resolve().is_relative_to(folder.resolve()) for folder in folders):
            folder_names = quote_names(sorted({str(f.resolve()) for f in folders})) or "none"
            raise ReadError(
                f'Cannot open "{path}" from the page: it opens files of these folders: {folder_names}. Name another '
                "one with study.explore(files=FOLDER), or open it in a cell with explorer.load(PATH)."
            )

    def save_study(self, tell: Callable[[StudySaved], object]) -> None:
        """Save the study, in the file that it is of, or in a new one in the kernel's folder; ``tell`` gets the words.

        The new one has a name that no file has there.
        """

        def work(progress: Reporting) -> None:
            progress.phase("Saving the study")
            is_own = self.file is not None and self.file.exists()
            stem = re.sub(r"[^\w.+ -]", "_", self.study.model.name)[:100].strip(". ") or "study"
            free = (Path.cwd() / name for name in _number(f"{stem}{{}}.rtlab"))
            path = self.file if is_own and self.file else next(p for p in free if not p.exists())
            self.file = self.study.save(path)
            size = format_number(path.stat().st_size, "B")
            text = f'{"Saved again, over the file before" if is_own else "Saved"}: "{path}", {size}, without weights.'
            # A cell runs in this folder.
            name = path.name if path.parent == Path.cwd() else str(path)
            tell(StudySaved(text, f"rtlab.open({name!r})"))

        self.tasks.start(work, "save the study")

    def read_dropped_files(self, command: ReadDropped, buffers: Sequence[Any]) -> None:
        """Files from the browser: they are read from a folder that goes away with the work."""
        names = command.names
        if len(names) != len(buffers):
            raise ReadError(
                f"Cannot read what was dropped: {len(buffers)} of {len(names)} files arrived. Drop them again, or give "
                "their paths in a cell."
            )

        def work(progress: Reporting) -> None:
            with tempfile.TemporaryDirectory(prefix="rtlab-", ignore_cleanup_errors=True) as folder:
                paths = []
                for i, (name, content) in enumerate(zip(names, buffers, strict=True)):
                    # A name may hold a path; two files may have one name.
                    home = Path(folder) / str(i)
                    home.mkdir()
                    paths.append(home / (re.sub(r"[^\w.+ -]", "_", Path(name).name)[-100:] or "file"))
                    paths[-1].write_bytes(content)
                self.read(paths, None, {}, progress, lasting=False)

        self.tasks.start(work, command.action)

    def _load(
        self, model: str | Path | bytes, name: str | None, progress: Reporting, *, data: Path | None = None
    ) -> None:
        from rtlab import samples

        if isinstance(model, (str, Path)) and recognise.holds_study(Path(model)):
            self._open_study(Path(model), progress)
            return
        if isinstance(model, (str, Path)) and recognise.holds_engine(Path(model)):
            self.read([Path(model)], name, {}, progress)
            return
        progress.phase("Opening the model")
        # A study stands above this row; the one at hand knows how to make another.
        study_type = type(self.study)
        if isinstance(model, str) and model in samples.names():
            sample = samples.load(model)
            study = study_type(sample.model, data=sample.calibration, task=sample.task)
        else:
            opened_model = _model.load(model, name=name)
            study = study_type(opened_model, data=None if data is None else read_samples(data, opened_model))
        self._adopt(study, progress)

    def _open_study(
        self, path: Path, progress: Reporting, folders: Sequence[Path] | None = None, *, lasting: bool = True
    ) -> None:
        """Show a saved study.

        Args:
            path: Its file.
            progress: Where to report.
            folders: Folders that its model may lie in, below too; None for any.
            lasting: Whether the file stays there.
        """
        progress.phase("Opening the study")
        self._replace_study(type(self.study).open(path, folders=folders))
        self.file = path.resolve() if lasting else None
        state = self.study.state
        first = next((v for n, v in state.variants.items() if not self.view.is_recorded(n)), None)
        self.widget.choice = offer.build_choice(state.model, first or offer.default_variant(state.model))
        self.open()

    def read(
        self,
        paths: Sequence[Path],
        name: str | None,
        read_options: collections.abc.Mapping[str, Any],
        progress: Reporting,
        *,
        lasting: bool = True,
    ) -> None:
        """Read files of one engine, or open a model among them; ``lasting`` says that the files stay there."""
        if len(paths) == 1 and recognise.holds_study(paths[0]):
            self._open_study(paths[0], progress, None if lasting else (), lasting=lasting)
            return
        progress.phase("Reading the files")
        arrays = [p for p in paths if recognise.holds_arrays(p)]
        if len(arrays) > 1:
            raise CalibrationError(
                f'Cannot use "{arrays[0].name}" and "{arrays[1].name}" as data: samples come in one file. Save all '
                "inputs together with numpy.savez(path, input_name=array, ...)."
            )
        files_by_kind = recognise.sort_by_kind(p for p in paths if p not in arrays)
        source = files_by_kind.pop("model", None)
        study = self.study
        if arrays and not files_by_kind and source is None:
            self._use(arrays[0], progress)
            return
        if source is not None:
            content: Path | bytes = source if lasting else read_input(source)
            if not files_by_kind and not read_options:
                self._load(content, source.stem, progress, data=next(iter(arrays), None))
                return
            # A study stands above this row; the one at hand knows how to make another.
            study = type(study)(
                _model.load(content, name=source.stem, weights=False), limits=study.state.limits
            )
        elif "build" in files_by_kind:
            # A recording is opened on the model that it is of, unless that is the one on screen.
            recording = build.read(files_by_kind["build"])
            if recording.source is not None and recording.structure != study.model.structure:
                study = type(study)(recording.source, limits=study.state.limits)
        title = _unused(name or _title(files_by_kind), study.state.variants)
        study.read(title, **{**files_by_kind, **read_options})
        if study is not self.study:
            self._replace_study(study)
            self.widget.choice = offer.build_choice(study.model, offer.default_variant(study.model))
            self.open()
        if arrays:
            self.study.accuracy.use_samples(data=read_samples(arrays[0], self.study.model))
        self.view.show(title)

    def _use(self, data: Any, progress: Reporting) -> None:
        """Other samples; the variant on screen is built anew where it rests on random input, the others when asked."""
        study = self.study
        if not study.model.nodes:
            title = getattr(data, "name", data)
            raise CalibrationError(
                f'Cannot use "{title}" as data: no ONNX model is open to run on it. Open one first.'
            )
        study.accuracy.use_samples(data=read_samples(data, study.model) if isinstance(data, Path) else data)
        visible_variant = self.view.state.variant
        if visible_variant and study.state.is_outdated(visible_variant):
            self.tasks.building = visible_variant
            self.view.refresh(building=visible_variant)
            self.builds.build(visible_variant, progress)

    def repair_placement(self, findings: Sequence[str]) -> None:
        """Open the model with findings of its Q/DQ placement repaired, all that can be where none are named."""

        def work(progress: Reporting) -> None:
            progress.phase("Repairing the placement")
            self._adopt_model(self.study.calibration.fix_qdq(findings or None, progress=progress), progress)

        self.tasks.start(work, "repair the model")

    def cut(self, until: Sequence[str]) -> None:
        """Open the part of the model that some values follow from, with what is chosen, and build it."""

        def work(progress: Reporting) -> None:
            progress.phase("Cutting the model")
            self._adopt(self.study.cut(until=until, progress=progress), progress, self.widget.choice)

        self.tasks.start(work, "cut the model")

    def name_sizes(self, sizes: collections.abc.Mapping[str, int]) -> None:
        """Open the model with these sizes of its dynamic dimensions, by the names that the page has for them."""

        def work(progress: Reporting) -> None:
            model = self.study.model
            shapes = partial_shapes.from_open_sizes(model.declared_shapes, sizes)
            self._adopt_model(model.sized(shapes), progress)

        self.tasks.start(work, "take these sizes")

    def _adopt_model(self, model: Model, progress: Reporting) -> None:
        """Show the model on screen in another form, with its data, its task and what is chosen."""
        study = self.study
        adopted = type(study)(model, data=study.state.user_data, task=study.task, limits=study.state.limits)
        self._adopt(adopted, progress, self.widget.choice)

    def _adopt(
        self, study: Session, progress: Reporting, previous_choice: dict[str, Any] | None = None
    ) -> None:
        """Show another study, and build its first variant: the one that was chosen, or fp32."""
        self._replace_study(study)
        first = offer.build_choice(study.model, offer.default_variant(study.model))
        # Pins and pruning name nodes, which another model may not have.
        names = ("precision", "calibrator", "target", "weights") if previous_choice else ()
        self.widget.choice = {**first, **{name: (previous_choice or {})[name] for name in names}}
        self.open()
        self.builds.check_shapes()
        variant_name = self.builds.plan_variant()
        self.view.refresh(building=variant_name)
        self.builds.build(variant_name, progress)

    def _replace_study(self, study: Session) -> None:
        with self.widget.lock:
            self.view.pictures = {}
            self.study.views.discard(self.view)
            study.views.add(self.view)
            self.view.study, self.view.baseline, self.file = study, "", None
            self.widget.engine = self.widget.other = b""
            self.widget.engine_later = self.widget.other_later = b""
            self.view.stop_inspection()
            self.widget.inspection = None

    def open(self) -> None:
        """Show the study: its model, and the first variant that is built."""
        study = self.study.state
        built_variant = next((n for n in study.variants if n in study.results), "")
        is_deferred = bool(built_variant) and not self.tasks.busy and is_large(study.results[built_variant])
        self.widget.source = encode(source_graph(study.model))
        self.widget.terms = glossary.glossary_terms()
        panes: tuple[Side, ...] = ("node", "layer") if study.model.nodes else ("layer",)
        # Of an engine that takes a while the page knows the name, and waits for it.
        visible_variant = built_variant if is_deferred else ""
        self.view.put(
            ViewState(
                variant=visible_variant,
                baseline=self.view.baseline or built_variant,
                tab=self.view.state.tab,
                panes=panes,
            )
        )
        self.widget.controls = dict(offer.build_controls(study.model, self.widget.choice))
        self.view.send_calibration()
        self.view.send_answers(panels.encode_payloads(PanelContext(study)))
        if is_deferred:
            self.tasks.start(
                lambda progress: self._show_large_engine(built_variant, progress), f'show "{built_variant}"'
            )
        elif built_variant in self.study:
            self.view.show(built_variant)
        else:
            self.view.refresh()

    def _show_large_engine(self, name: str, progress: Reporting) -> None:
        progress.phase("Preparing the engine's view")
        try:
            self.view.show(name)
        except BaseException:
            self.view.put(dataclasses.replace(self.view.state, variant=""))
            raise


def _title(files: collections.abc.Mapping[str, Path]) -> str:
    """A name for an engine, after the file that describes it."""
    path = next((files[k] for k in ("build", "layers", "archive", "log", "ort_model") if k in files), None)
    return path.name.partition(".")[0] if path else "engine"


def _unused(name: str, taken: collections.abc.Container[str]) -> str:
    return next(n for n in _number(f"{name}{{}}") if n not in taken)


def _number(form: str) -> Iterator[str]:
    """A name, and that name with the numbers from 2 on, where the braces stand."""
    return (form.format("" if i == 1 else f" {i}") for i in itertools.count(1))


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
        model = self.study.state.get_model(offer.choice_to_variant(self.widget.choice))
        for name in model.inputs:
            model.input_shape(name)

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
            sizes=dict(requested.sizes),
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
        # which its row shows.
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
                choices: Any = {k: values[k] for k in ("asks", "by") if k in values}
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
