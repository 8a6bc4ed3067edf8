"""What the page sends: every command of the declaration, and nothing else; and which tabs it has."""

from __future__ import annotations

import json
import re
import typing

import pytest

from rtlab.analyses import panels
from rtlab.documents import commands
from rtlab.documents.contract import Reply
from rtlab.documents.tabs import TABS
from rtlab.errors import RtlabError
from rtlab.web.page.charts import parts
from rtlab.web.page.contract import typescript

KINDS = typing.get_args(commands.Command)
CHOICE: commands.Choice = {
    "model": "tiny", "precision": "int8", "calibrator": "minmax", "target": "cpu", "backend": "",
    "pins": [{"pattern": "op:Conv", "precision": "fp32"}], "weights": "channel", "sparsity": [], "treatments": [],
    "sizes": ["N=4"],
}  # fmt: skip
#: What each kind of field holds in these tests.
VALUES = {
    "str": "fp32", "list[str]": ["a", "b"], "dict[str, str]": {"batch": "8"}, "dict[str, int]": {"batch": 8},
    "dict[str, list[int]]": {"image": [1, 3, 8, 8]}, "Choice": CHOICE, "WorkName": "sweep",
    "Literal['onnx', 'scales', 'cache']": "cache",
}  # fmt: skip


def told(kind: type) -> dict[str, object]:
    """A message of this kind as the page writes it, by hand from the declaration."""
    hints = kind.__annotations__
    fields = {f: VALUES[hints[f].replace('"', "'")] for f in kind.__struct_fields__}
    return {"type": kind.__struct_config__.tag, **fields}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_each_command_arrives_as_it_was_sent(kind) -> None:
    sent = json.loads(json.dumps(told(kind)))
    found = commands.read(sent)
    assert kind is type(found)
    assert sent == found.to_dict()


@pytest.mark.parametrize(
    ("kind", "field"),
    [(k, f) for k in KINDS for f in k.__struct_fields__],
    ids=lambda given: getattr(given, "__name__", given),
)
def test_a_command_without_one_of_its_fields_is_refused_in_words(kind, field: str) -> None:
    """What is taken for empty would do something else than was meant."""
    sent = told(kind)
    del sent[field]
    with pytest.raises(RtlabError, match=rf"^Cannot {kind.action}: the page sent what") as raised:
        commands.read(sent)
    assert f"missing required field `{field}`" in raised.value.details


def test_a_choice_is_read_to_its_last_field() -> None:
    sent = {"type": "build", "choice": {**CHOICE, "pins": [{"precision": "fp32"}]}}
    with pytest.raises(RtlabError, match=r"^Cannot build the variant: ") as raised:
        commands.read(sent)
    assert "missing required field `pattern` - at `$.choice.pins[0]`" in raised.value.details


def test_every_command_and_reply_stands_in_the_union_of_the_page() -> None:
    page = typescript()
    for union, kinds in (("Command", KINDS), ("Reply", typing.get_args(Reply))):
        names = [k.__struct_config__.tag for k in kinds]
        assert len(set(names)) == len(names)
        assert f"export type {union} = {' | '.join(k.__name__ for k in kinds)};" in page
        for kind, name in zip(kinds, names, strict=True):
            assert re.search(rf'export interface {kind.__name__} {{\s+type: "{name}";', page)
    assert {k.__name__ for k in commands.PageCommand.__subclasses__()} == {k.__name__ for k in KINDS}


def test_every_panel_stands_in_one_tab() -> None:
    assert [tab.name for tab in TABS] == list(dict.fromkeys(q.tab for q in panels.ANALYSES))
    answered = {tab.name for tab in TABS if tab.part == "analysis"}
    lines = [line for line in typescript().splitlines() if line.startswith('  {"name"')]
    for question in (q for q in panels.ANALYSES if q.tab in answered):
        (line,) = (line for line in lines if f'"{question.name}"' in line.partition('"panels"')[2])
        assert f'"name": "{question.tab}"' in line


def test_the_code_of_every_tab_is_delivered() -> None:
    wanted = {f"tab-{tab.part}.js" for tab in TABS if tab.part}
    assert wanted == {name for name in parts() if name.startswith("tab-")}
