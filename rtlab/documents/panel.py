"""Parts of a panel: facts, columns, links and settings, each ready to show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rtlab.core.schema import Origin
from rtlab.documents.commands import WORKS, WorkName
from rtlab.documents.contract import Fact, Link, Option, Setting, Work


def fact(key: str, value: str, origin: Origin | None = None, note: str = "") -> Fact:
    """One number, ready to show; without an origin it is a count."""
    return Fact(key=key, value=value, origin=origin or "", note=note)


def button(work: WorkName, label: str, why: str = "", **values: str) -> Work:
    """Something that takes a while, with what goes with it; ``why`` it cannot be done, empty where it can."""
    return Work(work=work, label=label, told=WORKS[work], values=values, reason=why)


def link(nodes: Iterable[str] = (), layers: Iterable[str] = (), others: Iterable[str] = ()) -> Link:
    """What a point or a row stands for: places of nodes, ids of layers, ids of layers of the other variant."""
    return Link(nodes=list(nodes), layers=list(layers), others=list(others))


def make_slider(
    key: str, label: str, description: str, values: Iterable[int | str], value: int | str
) -> Setting:
    """A slider over given values, and over the one that it stands at."""
    listed = list(values)
    if value not in listed:
        listed = sorted([*listed, value], key=int)
    options = [Option(id=str(v), label=str(v), reason="") for v in listed]
    return Setting(
        key=key, label=label, told=description, kind="range", value=str(value), options=options, hint=""
    )


def make_batch_slider(engine_batch: int, value: int) -> Setting:
    """A slider over usual batch sizes and that of the engine itself."""
    return make_slider(
        "batch",
        "Batch",
        "How many inputs one inference takes; numbers follow from it.",
        sorted({*(2**i for i in range(9)), engine_batch}),
        value,
    )


def make_select(key: str, label: str, description: str, options: Mapping[str, str], value: str) -> Setting:
    """A list to choose from: labels by value."""
    listed = [Option(id=v, label=text, reason="") for v, text in options.items()]
    return Setting(
        key=key, label=label, told=description, kind="select", value=value, options=listed, hint=""
    )


def make_text_field(key: str, label: str, description: str, value: str, hint: str) -> Setting:
    """Something to write."""
    return Setting(key=key, label=label, told=description, kind="text", value=value, options=[], hint=hint)
