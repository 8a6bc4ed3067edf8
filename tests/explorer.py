"""The Explorer on a page, as a person uses it."""

from __future__ import annotations

import json

#: A study of two variants on the CPU, compared and scored, and its Explorer.
DIGITS = """import rtlab
sample = rtlab.samples.load("digits_inception")
study = rtlab.Study(sample.model, data=sample.calibration, task=sample.task)
study.add("fp32", target="cpu")
study.add("int8", precision="int8", target="cpu", calibrator="minmax")
study.run()
explorer = study.explore()
explorer"""
EXPLORER = ".rt-explorer"
_CENTRE = (
    "() => document.querySelector('.rt-explorer').scrollIntoView({block: 'center', behavior: 'instant'})"
)
READY = f'{EXPLORER}[data-ready="1"]'

#: Each stage waits at its gate, and hears of a cancel there as it does in its work, until ``ungate()``.
GATED = """
import threading
import rtlab
from rtlab.core.progress import check
from rtlab.study import stages as measuring

gates = {name: threading.Event() for name in ("_time", "_compare", "_score")}

def gated(name, work):
    def waiting(self, within):
        while not gates[name].wait(0.02):
            check(self.progress, "waiting")
        return work(self, within)
    return waiting

def ungate():
    for name, work in stages.items():
        setattr(measuring._Measuring, name, work)

stages = {name: getattr(measuring._Measuring, name) for name in gates}
for name, work in stages.items():
    setattr(measuring._Measuring, name, gated(name, work))

sample = rtlab.samples.load("digits_inception")
study = rtlab.Study(sample.model, data=sample.calibration, task=sample.task)
explorer = study.explore()
explorer.choice = {**explorer.choice, "precision": "int8", "calibrator": "minmax"}
"""


def allow(page, seconds: str) -> None:
    page.click(f'{EXPLORER} [data-control="settings"] button')
    page.click(f'{EXPLORER} [data-item="budget-{seconds}"]')


class Explorer:
    def __init__(self, lab_page) -> None:
        self.lab, self.page = lab_page, lab_page.page

    def ready(self) -> None:
        self.page.wait_for_selector(READY)

    def data(self, name: str):
        return self.page.get_attribute(EXPLORER, f"data-{name}")

    def listed(self, name: str) -> list[str]:
        return json.loads(self.data(name))

    def click(self, side: str, box: str) -> None:
        self.ready()
        self.page.evaluate(_CENTRE)
        at = self.page.evaluate(
            "([side, id]) => document.querySelector('.rt-explorer').rtlabBoxAt(side, id)", [side, box]
        )
        self.page.mouse.click(at["x"], at["y"])

    def wait_data(self, name: str, value: object) -> None:
        text = (
            value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        )
        self.page.wait_for_function(
            "([name, text]) => document.querySelector('.rt-explorer').getAttribute('data-' + name) === text",
            arg=[name, text],
        )

    def choose(self, control: str, value: str) -> None:
        if control == "precision":
            self.page.click(f'{EXPLORER} [data-control="precision"] [data-value="{value}"]')
            return
        self.page.click(f'{EXPLORER} [data-control="{control}"]')
        self.page.click(f'{EXPLORER} [role="option"][data-value="{value}"]')

    def build(self) -> None:
        self.page.click(f'{EXPLORER} [data-control="build"]')

    def shown(self, variant: str) -> None:
        self.lab.wait_python(
            f"explorer.study[explorer.state.variant].variant.name == {variant!r} and not explorer.build['running']"
            " if explorer.state.variant else False"
        )
        self.wait_data("variant", self.lab.python("explorer.state.variant"))
        self.ready()


def show(shown: Explorer, tab: str, panel: str) -> str:
    page = shown.page
    # A click on the open tab would fold it.
    if page.get_attribute(f'{EXPLORER} [data-tab="{tab}"]', "aria-expanded") == "false":
        page.click(f'{EXPLORER} [data-tab="{tab}"]')
    segment = f'{EXPLORER} [data-segment="{panel}"]'
    if page.locator(segment).count():
        page.click(segment)
    where = f'{EXPLORER} [data-panel="{panel}"]'
    page.wait_for_selector(f'{where}[aria-busy="false"] h4:not(:empty)')
    page.evaluate(_CENTRE)
    return where
