"""Which layers of two engines do the same work, what names tell, and which layers compute a step of a recurrence."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from typing import Any

import scenes
from answers import refusable
from golden.test_classic import predicted
from recurrent import listing, recurrent_model
from rtlab.analyses.difference import Difference, Side, compute_difference
from rtlab.analyses.recurrence.fused_cells import analyze_recurrences
from rtlab.core.engine import Engine, Layer
from rtlab.core.model import make_empty_model
from rtlab.relation import similarity
from rtlab.relation.flow import Flow
from rtlab.relation.mapping import Mapping
from rtlab.relation.names import Names, is_trt_name, operator, words
from rtlab.relation.relate import relate
from unit.relation.test_names import chain

COMPARED = (*scenes.SAMPLES, "two_outputs", "written")


def stripped(engine: Engine, *, kinds: bool = False) -> Engine:
    gone: dict[str, Any] = {"inputs": (), "outputs": (), "attributes": {}} if kinds else {}
    layers = [dataclasses.replace(y, name=f"{y.kind} {y.index}", origins=(), **gone) for y in engine.layers]
    return dataclasses.replace(engine, layers=tuple(layers))


def groups(found: Difference) -> dict[str, Any]:
    at = [{y.id: y.index + 1 for y in side.engine.layers} for side in (found.first, found.second)]
    told = {}
    for g in found.groups:
        one, two = (
            " ".join(str(a[i]) for i in h.layers) for a, h in zip(at, (g.first, g.second), strict=True)
        )
        told[f"{one} | {two}"] = f"{g.basis}: {g.title}; {g.cause}"
    return {"groups": told, "overlap": f"{found.overlap}, {found.overlap.comparable}"}


@scenes.of(COMPARED)
def test_layers_of_two_engines_are_set_side_by_side_as_in_the_file(subject: str, golden: Any) -> None:
    study = scenes.study(subject)
    first, *_, last = study
    one, two = study[first].engine, study[last].engine
    sections = {
        "known": compared(study, one, two),
        "predicted": refusable(lambda: compared(study, one, predicted(study.model))),
        "stripped": groups(
            compute_difference(Side("one", stripped(one)), Side("two", stripped(two)), make_empty_model())
        ),
        "half": groups(compute_difference(Side("one", stripped(two)), Side("two", one), make_empty_model())),
        "kinds": groups(
            compute_difference(
                Side("one", stripped(one, kinds=True)), Side("two", stripped(two)), make_empty_model()
            )
        ),
    }
    every = similarity.compute_signatures((one, two))[0]
    signs = {f"{y.index + 1} {y.kind}": str(every[y.id]).partition("(")[2] for y in one.layers}
    head = scenes.head(study[first].facts)
    compiler, sections = head.partition(" · ")[2], sections | {"does": signs}
    golden(f"relation/{subject}.json", {f"{k} · {compiler}": v for k, v in sections.items()})


def compared(study: Any, one: Engine, two: Engine) -> dict[str, Any]:
    sides = [Side(n, e, relate(study.model, study.model, e)) for n, e in (("one", one), ("two", two))]
    return groups(compute_difference(*sides, study.model))


def parts(one: Any, engine: Engine) -> dict[str, Any]:
    at = {y.id: y.index + 1 for y in engine.layers}
    layers = {
        str(at[p.layer]): f"{p.runs}x, {p.declared}: {p.why} "
        + "; ".join(f"{q.role} of {[*q.steps]}, {q.gates}: {q.evidence}" for q in p.parts)
        for p in one.pieces
    }
    names = ("form", "found", "body", "turns", "hoisted", "merged", "evidence", "products")
    told = {k: getattr(one, k) for k in names}
    return {**told, "launches": one.launches, "layers": layers}


def altered(engine: Engine) -> dict[str, Engine]:
    def each(change: Any, which: str = "") -> Engine:
        return dataclasses.replace(
            engine, layers=tuple(change(y) if which in y.name else y for y in engine.layers)
        )

    def shaped(y: Layer, shape: Any) -> Layer:
        return dataclasses.replace(
            y, constants=tuple(dataclasses.replace(t, shape=shape(t.shape)) for t in y.constants)
        )

    def cut(y: Layer) -> Layer:
        return dataclasses.replace(
            y, name=re.sub("TanhMul_", "_", y.name), tactic=re.sub("TanhMul$", "", y.tactic)
        )

    def together(y: Layer) -> Layer:
        return dataclasses.replace(y, constants=(*y.constants, *engine.layers[1].constants))

    return {
        "as it is": engine,
        "without labels": each(lambda y: dataclasses.replace(y, origins=())),
        "without one state": dataclasses.replace(engine, layers=engine.layers[:5] + engine.layers[6:]),
        "without weights": each(lambda y: dataclasses.replace(y, constants=()), "state_unroll1"),
        "weights turned": each(lambda y: shaped(y, lambda s: s[::-1])),
        "one gate": each(lambda y: shaped(y, lambda s: (*s[:-1], 16))),
        "half a step": each(cut, "AddAdd"),
        "two products in one": each(together, "input_unroll"),
        "a copy": each(
            lambda y: dataclasses.replace(y, name="__myl_Move", tactic="__myl_Move", kind="kgen"), "input_unroll2"
        ),
        "a signal": each(lambda y: dataclasses.replace(y, kind="signal"), "input_unroll0"),
    }  # fmt: skip


def test_steps_of_recurrences_are_those_of_the_file(golden: Any) -> None:
    sections = {}
    for inputs, layers in ((8, 1), (16, 1), (16, 2)):
        model = recurrent_model("LSTM", 4, batch=4, inputs=inputs, layers=layers, head=False)
        for name, engine in [*altered(listing(4, layers, inputs=inputs)).items()][: 10 if layers == 1 else 3]:
            told = analyze_recurrences(model, model, engine, Mapping((), ()))
            sections[f"{inputs} inputs, {layers} layers, {name}"] = [parts(one, engine) for one in told]
    golden("relation/steps.json", sections)


NAMES = (
    "conv1 + relu1", "PWN(PWN(relu1), add)", "conv1 || conv2", "{ForeignNode[conv1...add]}", "relu1 copy",
    "relu1_copy_2", "{ForeignNode[conv1]}", "{ForeignNode[onnx::w...add]}",
    "Reformatting CopyNode for Input Tensor 0 to conv1", "/m_0/conv_myl7_3", "/m.0/conv", "/m_0/conv_2",
    "conv1_2 + relu1_3", "(Unnamed Layer* 3) [Shuffle] + twice", "twice", "join copy",
    "[CONVOLUTION]-[aten_ops.convolution.default]-[/layer1/0/convolution_1]",
    "[RELU]-[aten_ops.relu.default]-[/layer1/0/relu_2]", "[RELU]-[aten_ops.relu.default]-[/layer1/0/relu]",
    "[ELEMENTWISE]-[aten_ops.add.Tensor]-[/layer1/0/add]", "[RELU]-[aten_ops.relu.default]-[relu1]",
    "[RELU]-[aten_ops.relu.default]-[/other/relu]", "ONNXTRT_Broadcast_4", "node_relu_7",
    "conv1 + {ForeignNode[relu1...join]} + add [profile 1]", "PWN(odd", "odd)", "a, b", "",
)  # fmt: skip


def test_names_tell_nodes_as_in_the_file(golden: Any) -> None:
    model = chain(
        ("conv1", "Neg"), ("relu1", "Relu"), ("add", "Add"), ("/m.0/conv", "Exp"), ("twice", "Abs"),
        ("join", "Concat"), ("/layer1/layer1.0/Convolution", "Neg"), ("/layer1/layer1.0/Relu", "Relu"),
        ("/layer1/layer1.0/Relu_1", "Relu"), ("/layer1/layer1.0/Add", "Add"), ("a, b", "Relu"), ("", "Neg"),
    )  # fmt: skip
    names = Names(model, Flow(model))

    def nodes(found: Iterable[Any]) -> list[str]:
        return [f"{' '.join(n.id for n in f.nodes)}{'' if f.sure else '?'}: {f.note}" for f in found]

    golden(
        "relation/names.json",
        {
            n: {
                "words": words(n), "known": words(n, names, longest=2), "operator": operator(n), "own": is_trt_name(n),
                "nodes": nodes(names.find_explicit(n)), "regions": nodes(names.find_regions(n, ("relu1",))),
            }
            for n in NAMES
        },
    )  # fmt: skip
