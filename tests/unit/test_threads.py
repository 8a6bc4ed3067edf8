"""One study in several threads: what is read while others add, run and remove ends in a result, or in words."""

from __future__ import annotations

import contextlib
import itertools
import sys
import threading
from collections.abc import Callable, Mapping

import pytest

from rtlab import CalibrationData, Study, report
from rtlab.documents import commands
from rtlab.errors import RtlabError, VariantError
from rtlab.explorer.explorer import Explorer
from rtlab.questions import panels
from rtlab.session.job import compiled
from rtlab.testing import tiny_model

NAMES = ("fp32", "int8", "comes", "goes")
#: Times that the variants come and go.
ROUNDS = 20


@pytest.fixture
def study() -> Study:
    model = tiny_model()
    made = Study(model, data=CalibrationData.random(model, samples=8))
    for name in ("fp32", "int8"):
        made.add(name, target="cpu", backend="onnxruntime")
    return made.run(budget_s=0)


@pytest.fixture
def hurried():
    """Threads change places after every few steps."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def reads(study: Study, explorer: Explorer, folder) -> dict[str, Callable[[str], object]]:
    """Everything public that a thread may ask of a study, and of an Explorer on it, by name of a variant."""

    def asked(name: str) -> None:
        for command in (
            commands.ShowVariant(name),
            commands.CompareVariant(name),
            commands.SetBaseline(name),
            commands.AskPanel("page.1", "memory", name, {}),
            commands.SaveFile(name, "scales"),
        ):
            explorer._receive(explorer, command.crossing(), [])

    return {
        "result": lambda name: study[name].table(),
        "result's repr": lambda name: (repr(study[name]), study[name].findings, study[name].memory()),
        "names": lambda _: ([*study.snapshot().variants.values()], len(study)),
        "tables": lambda _: [[*t.items()] for t in (study.variants, study.results, study.failures, study.sweeps)],
        "built": lambda _: [study.results.get(n) for n in study],
        "repr": lambda _: (repr(study), study._repr_html_(), repr(explorer)),
        "compare": lambda name: study.difference("fp32", name).groups,
        "report": lambda _: study.to_html(folder / f"{threading.get_ident()}.html"),
        "explain": lambda name: study.explain("stem/Conv", variant=name),
        "pairs": lambda name: (study.pairs(name), study.findings(name)),
        "varied": study.varied,
        "measure": lambda name: study.measure(name, budget_s=1e-9),
        "prepare": lambda _: study.prepare("fp32"),
        "export": lambda name: study.export(name, folder / f"{threading.get_ident()}.onnx"),
        "graph": lambda name: study.graph(name).state,
        "calibration": lambda _: study.calibration,
        "use": lambda _: study.use(CalibrationData.random(study.model, samples=8)),
        "outdated": study.outdated,
        "panels": lambda name: [explorer.panel(p) for p in panels.PANELS],
        "show": explorer.show,
        "beside": explorer.compare,
        "commands": asked,
        "state": lambda _: (explorer.state, explorer.chips, explorer.status, explorer.view),
    }  # fmt: skip


class Asking:
    """Does what it is told and notes what came of it: what was done, and each end without words."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.astray: list[str] = []
        self.over = threading.Event()

    def do(self, what: str, work: Callable[..., object], *given: object, **more: object) -> None:
        try:
            work(*given, **more)
        except RtlabError as error:
            if "Nobody foresaw" in str(error):
                self.astray.append(f"{what}: {error.details}")
        except Exception as error:  # noqa: BLE001 - that there is none is what is tested
            self.astray.append(f"{what}: {error!r}")
        self.done.append(what)

    def read(self, asked: Mapping[str, Callable[[str], object]], first: int) -> None:
        turns = itertools.cycle([(what, name) for name in NAMES for what in asked])
        for what, name in itertools.islice(turns, first, None):
            if self.over.is_set():
                return
            self.do(what, asked[what], name)

    def change(self, study: Study) -> None:
        kept = study["int8"]
        for turn in range(ROUNDS):
            for name, precision in (("comes", "fp32"), ("goes", "int8")):
                self.do("add", study.add, name, precision=precision, target="cpu", backend="onnxruntime")
            self.do("run", study.run, ["comes", "goes"], budget_s=0)
            for name in ("comes", "goes"):
                self.do("remove", study.remove, name)
            if turn % 3 == 2:
                self.do("remove", study.remove, "int8")
                self.do("adopt", study._adopt, kept.facts)
        self.over.set()


@pytest.mark.usefixtures("hurried")
def test_whatever_is_asked_while_variants_come_and_go_ends_in_a_result_or_in_words(study, tmp_path) -> None:
    """Of 409 operations 14 ended in a KeyError: somebody had removed what another thread was reading."""
    explorer, asking = study.explore(), Asking()
    asked = reads(study, explorer, tmp_path)
    threads = [threading.Thread(target=asking.read, args=(asked, i * len(asked) // 3)) for i in range(3)]
    threads.append(threading.Thread(target=asking.change, args=(study,)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(t.is_alive() for t in threads)
    explorer.wait(60)
    assert [] == asking.astray
    assert {*asked} <= {*asking.done}
    assert explorer.failure is None or "Nobody foresaw" not in explorer.failure["message"]
    assert {"fp32", "int8"} == set(study.variants) == set(study.results)
    assert {"fp32", "int8"} == {c["id"] for c in explorer.chips}


class Vanishing(Study):
    """A study that another thread removes ``int8`` from, just when somebody looks at it for the so-and-so-manieth time.

    ``left`` counts down to that, ``by`` is the thread.
    """

    def __init__(self, study: Study) -> None:
        self.left, self.by = [0], threading.Thread(target=self.remove, args=("int8",))
        super().__init__(study.model, data=study.data)
        for facts in study.facts.values():
            self._adopt(facts)

    @property
    def _kept(self):
        self.left[0] -= 1
        # Who changes it looks at it too, and nobody else changes it meanwhile.
        if self.left[0] == 0 and not self._lock.locked():
            self.by.start()
            while "int8" in self.home["held"].variants:
                self.by.join(0.001)
        return vars(self)["held"]

    @_kept.setter
    def _kept(self, kept) -> None:
        # A snapshot, which is a copy, has the thread of the study that it is of.
        self.home = vars(self)
        vars(self)["held"] = kept


READS = {
    "html": lambda study, _: study._repr_html_(),
    "report": lambda study, _: report.saved(study.snapshot()),
    "compare": lambda study, _: study.difference("fp32", "int8"),
    "explain": lambda study, _: study.explain("stem/Conv", variant="int8"),
    "varied": lambda study, _: study.varied("int8"),
    "graph": lambda study, _: study.graph("int8"),
    "chips": lambda _, explorer: explorer._refresh(),
    "shown": lambda _, explorer: explorer.show("int8"),
    "beside": lambda _, explorer: explorer.compare("int8"),
    "variants": lambda _, explorer: explorer.panel("variants"),
    "difference": lambda _, explorer: explorer.panel("difference"),
    "explorer": lambda study, _: study.explore(),
    "run": lambda study, _: study.run(budget_s=0),
}


@pytest.mark.parametrize("what", READS)
def test_at_whatever_point_of_a_reading_a_variant_goes_it_ends_in_a_result_or_in_words(study, what) -> None:
    """Two looks at a study are two moments; whoever needs one takes a snapshot."""
    removed = 0
    # A report looks more often than anybody has time to follow.
    for turn in range(1, 400, 23 if what == "report" else 3 if what == "explorer" else 1):
        made = Vanishing(study)
        explorer = made.explore()
        explorer.show("int8")
        made.left[0] = turn
        with contextlib.suppress(RtlabError):
            READS[what](made, explorer)
        assert explorer.failure is None, explorer.failure
        if made.left[0] > 0:
            break
        made.left[0] = 0
        if made.by.ident is None:
            continue
        made.by.join(60)
        removed += 1
        assert ["fp32"] == list(made) == [c["id"] for c in explorer.chips]
        assert "fp32" == explorer.state.variant
    assert removed
    assert turn < 390


def test_a_variant_that_is_removed_while_it_is_built_does_not_come_back(study, monkeypatch) -> None:
    """The chip would be back, of a variant that the study does not have; and whoever waits is told why."""

    def removed(job, *given):
        study.remove(job.name)
        return compiled(job, *given)

    monkeypatch.setattr("rtlab.session.runs.compiled", removed)
    study.add("gone", precision="fp16", target="cpu", backend="onnxruntime")
    with pytest.raises(VariantError) as told:
        study.run()
    assert (
        'Cannot keep what was found of variant "gone": it was removed while it was built or measured. '
        "Add it again with study.add."
    ) == str(told.value)
    assert {"fp32", "int8"} == set(study.variants) == set(study.results)
    assert not study.failures


def test_what_is_found_of_a_variant_is_not_kept_for_another_one_of_its_name(study, monkeypatch) -> None:
    """An fp16 engine under the name of an int8 variant would be believed."""

    def replaced(job, *given):
        if job.variant.precision == "fp16":
            study.add("mine", precision="fp32", target="cpu", backend="onnxruntime")
        return compiled(job, *given)

    monkeypatch.setattr("rtlab.session.runs.compiled", replaced)
    study.add("mine", precision="fp16", target="cpu", backend="onnxruntime")
    with pytest.raises(
        VariantError, match=r'"mine": it was planned anew while .* Run study.run\(\) for the new one'
    ):
        study.run()
    assert "mine" not in study.results
    assert not study.failures
    assert "fp32" == str(study.run()["mine"].variant.precision)


def test_a_snapshot_stays_what_it_was(study) -> None:
    """Whoever tells several things of a study tells them of one moment."""
    still, before = study.snapshot(), study.results
    study.remove("int8")
    study.add("later", precision="fp16", target="cpu", backend="onnxruntime")
    assert ["fp32", "int8"] == list(still.variants) == list(still.facts) == list(before)
    assert "int8" == still.facts["int8"].name
    assert ["fp32", "later"] == list(study)


def test_tables_of_a_study_are_for_reading(study) -> None:
    """What is put into one by hand would be in no other, and whoever reads them all would fail."""
    for table in (study.variants, study.results, study.failures, study.sweeps, study.forms):
        with pytest.raises(TypeError):
            table["fp32"] = None
