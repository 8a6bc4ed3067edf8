"""What rtlab says of every engine: what differs between two, what is worth changing, and what a reader must not miss.

Every layer that computes is in one group of a difference, and no node is in two. What the engines themselves tell, such
as the types behind a finding, is looked up in their layers again. The words of each table were read by eyes.
"""

from __future__ import annotations

import re
from typing import Any

import scenes
from rtlab.questions.difference.diff import difference
from rtlab.view.chrome import status


def check_difference(found: Any) -> None:
    """The groups hold every layer of both engines once, whatever they call what differs."""
    for side, half in ((found.first, "first"), (found.second, "second")):
        grouped = [i for g in found.groups for i in getattr(g, half).layers]
        assert len({*grouped}) == len(grouped)
        silent = {y.id for y in side.engine.layers} - {*grouped}
        assert not {i for i in silent if scenes.multiplies(side.engine.layer(i))}
    nodes = [n for g in found.groups for n in g.nodes]
    assert len({*nodes}) == len(nodes)
    for group in found.groups:
        # A node is in the group of every layer that does its work.
        for half, side in ((group.first, found.first), (group.second, found.second)):
            for layer in half.layers:
                work = {p.node for p in side.mapping.of(layer) if p.role in {"work", "bias", "scale"}}
                assert not group.nodes or work <= {*group.nodes}, (group.title, layer)


def groups(found: Any) -> list[str]:
    """A line for each group: its nodes, the layers of both by number, and what differs."""
    numbers = [{y.id: y.index + 1 for y in s.engine.layers} for s in (found.first, found.second)]
    told = []
    for g in found.groups:
        sides = [
            " ".join(str(n[i]) for i in half.layers) or "none"
            for n, half in zip(numbers, (g.first, g.second), strict=True)
        ]
        told.append(f"{g.title} [{len(g.nodes)} nodes]: {sides[0]} → {sides[1]}: {g.cause} ({g.basis})")
    return told


def check_findings(result: Any, model: Any) -> None:
    """Nodes and layers that a finding names are there, and the types that it quotes are those of the layer."""
    known = {n.id for n in model.nodes}
    for finding in result.findings:
        assert {*finding.layers} <= {y.id for y in result.engine.layers}, finding.id
        assert not model.nodes or {*finding.nodes} <= known, finding.id
        for name, reads, writes in re.findall(
            r'"([^"]+)" \([\w ]+\) reads (\w+) [^;]*? and writes (\w+)', finding.evidence
        ):
            start, _, end = name.partition("...")
            layers = [y for y in result.engine.layers if y.name.startswith(start) and y.name.endswith(end)]
            assert any(
                reads in {t.dtype for t in y.inputs} and writes in {t.dtype for t in y.outputs}
                for y in layers
            ), finding.id


def findings(result: Any) -> list[str]:
    """A line for each finding, and its remedy."""
    number = {y.id: y.index + 1 for y in result.engine.layers}
    told = []
    for f in result.findings:
        where = " ".join(str(number[i]) for i in f.layers[:8]) + (" ..." if len(f.layers) > 8 else "")
        told += [f"{f.rule} at {where or 'no layer'}: {f.title}", f"    {f.fix}"]
    return told or ["none"]


@scenes.samples
def test_differences_of_a_sample_between_fp32_and_the_others(name: str, golden: Any) -> None:
    """What changed when the precision did."""
    made = scenes.study(name)
    tables = {}
    for head, result in scenes.results(name):
        if result is made.results.get("fp32"):
            continue
        tables[head] = []
        if result and "fp32" in made.results:
            found = difference(made["fp32"].side(), result.side(), made.model)
            check_difference(found)
            tables[head] = groups(found)
    golden(f"difference/{name}.txt", tables)


@scenes.samples
def test_findings_and_words_of_a_sample(name: str, golden: Any) -> None:
    """What the status line says of a variant, and what is worth changing."""
    made = scenes.study(name)
    tables, words = {}, {}
    for (head, result), variant in zip(scenes.results(name), made.variants, strict=True):
        if result:
            check_findings(result, made.model)
            tables[head] = findings(result)
            words[head] = [
                f"{s['origin']}{' (warning)' if s['warning'] else ''}: {_timeless(s['text'])}"
                for s in status(made.snapshot(), variant)
                if not s["text"].startswith("compiled: ")
            ]
        else:
            tables[head] = []
            words[head] = [str(made.failures[variant])]
    golden(f"findings/{name}.txt", tables)
    golden(f"words/{name}.txt", words)


def _timeless(text: str) -> str:
    return re.sub(r"building took [\d.]+ s", "building took ... s", text)


@scenes.recorded
def test_findings_of_a_recorded_engine(folder: Any, golden: Any) -> None:
    """With its profile, where one was recorded: the costs are those of its own layers."""
    result, model = scenes.engine(folder)
    check_findings(result, model)
    times = {t.layer: t.median * 1000 for t in result.own_times.layers} if result.own_times else {}
    for finding in result.findings:
        if finding.microseconds is not None and finding.layers:
            assert finding.microseconds <= sum(times[i] for i in {*finding.layers} if i in times) * (
                1 + 1e-9
            ), finding.id
    golden(f"findings/recorded-{folder.name}.txt", {f"# {result.engine.title}": findings(result)})


@scenes.built
def test_findings_of_a_kept_build(path: Any, golden: Any) -> None:
    """What a print alone shows, without a time."""
    result, model = scenes.listing(path)
    check_findings(result, model)
    golden(f"findings/built-{path.stem}.txt", {f"# {path.stem}": findings(result)})
