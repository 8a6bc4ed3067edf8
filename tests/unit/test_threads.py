"""One study in several threads: what is read while others add, run and remove ends in a result, or in words."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Mapping

import pytest

from rtlab import CalibrationData, Study
from rtlab.analyses import panels
from rtlab.documents import commands
from rtlab.errors import RtlabError, VariantError
from rtlab.study.job import compile_variant
from rtlab.study.recorded import adopt
from rtlab.testing import tiny_model
from rtlab.web.explorer.explorer import Explorer

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
        several = (commands.ShowVariant, commands.CompareVariant, commands.SetBaseline)
        panel, save = commands.AskPanel("page.1", "memory", name, {}), commands.SaveFile(name)
        for command in (*(c(name) for c in several), panel, save):
            explorer._receive(explorer, command.to_dict(), [])

    return {
        "result": lambda name: study[name].table(),
        "result's repr": lambda name: (repr(study[name]), study[name].findings, study[name].memory()),
        "names": lambda _: ([*study.state.variants.values()], len(study)),
        "tables": lambda _: [[*t.items()] for t in (study.state.variants, study, study.state.failures)],
        "built": lambda _: [study.get(n) for n in study],
        "repr": lambda _: (repr(study), study._repr_html_(), repr(explorer)),
        "compare": lambda name: study.difference("fp32", name).groups,
        "report": lambda _: study.report(folder / f"{threading.get_ident()}.html"),
        "explain": lambda name: study.explain("stem/Conv", variant=name),
        "pairs": lambda name: (study.calibration.pairs(name), study.findings(name)),
        "measure": lambda name: study.measure(name, budget_s=1e-9),
        "prepare": lambda _: study.calibration.prepare("fp32"),
        "export": lambda name: study.export(name, folder / f"{threading.get_ident()}.onnx"),
        "graph": lambda name: study.graph(name).state,
        "calibration": lambda _: study.state.calibration,
        "use": lambda _: study.accuracy.use_samples(data=CalibrationData.random(study.model, samples=8)),
        "outdated": lambda name: [study.state.is_outdated(n) for n in (name, "none")],
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
                self.do("adopt", adopt, study._holder, kept.facts)
        self.over.set()


@pytest.mark.slow
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
    assert {"fp32", "int8"} == set(study.state.variants) == set(study)
    assert {"fp32", "int8"} == {c["id"] for c in explorer.chips}


@pytest.mark.parametrize("added", [True, False])
def test_what_is_found_of_a_variant_is_not_kept_for_another_one_of_its_name_or_none(
    study, monkeypatch, added
) -> None:
    def replaced(job, *given):
        if job.variant.precision == "fp16":
            if added:
                study.add("mine", precision="fp32", target="cpu", backend="onnxruntime")
            else:
                study.remove("mine")
        return compile_variant(job, *given)

    monkeypatch.setattr("rtlab.study.runner.compile_variant", replaced)
    study.add("mine", precision="fp16", target="cpu", backend="onnxruntime")
    with pytest.raises(VariantError, match="removed, or planned anew"):
        study.run()
    assert {"fp32", "int8"} == set(study) == set(study.state.variants) - {"mine"}
    assert not study.state.failures
    if added:
        assert "fp32" == str(study.run()["mine"].variant.precision)
    else:
        assert "mine" not in study.state.variants
