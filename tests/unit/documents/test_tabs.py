"""What is declared of the tabs fits what there is to show."""

from __future__ import annotations

from rtlab.documents.tabs import TABS
from rtlab.questions import panels
from rtlab.view.bundle import parts
from rtlab.view.contract import typescript


def test_every_panel_stands_in_one_tab() -> None:
    assert [tab.name for tab in TABS] == list(dict.fromkeys(q.tab for q in panels.QUESTIONS))
    answered = {tab.name for tab in TABS if tab.part == "analysis"}
    lines = [line for line in typescript().splitlines() if line.startswith('  {"name"')]
    for question in (q for q in panels.QUESTIONS if q.tab in answered):
        (line,) = (line for line in lines if f'"{question.name}"' in line.partition('"panels"')[2])
        assert f'"name": "{question.tab}"' in line


def test_the_code_of_every_tab_is_delivered() -> None:
    wanted = {f"tab-{tab.part}.js" for tab in TABS if tab.part}
    assert wanted == {name for name in parts() if name.startswith("tab-")}
