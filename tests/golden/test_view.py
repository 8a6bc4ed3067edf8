"""What the page and reports get of every subject: edges, numbers of boxes, chips, status, what can be chosen."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import rtlab
import scenes
from answers import refusable, without
from rtlab.analyses.study_state import SampleSelection
from rtlab.backends.readers.inspector import layers_json
from rtlab.core.model import make_empty_model
from rtlab.core.variant import Variant
from rtlab.errors import BuildError, RtlabError
from rtlab.web.page import charts, chrome, controls, table
from rtlab.web.page.document import build_variant_document
from rtlab.web.page.graph import engine_view, source_graph
from rtlab.web.page.state import parse_steps
from snapshots import plain

#: Of runs, whose last digits are those of the processor.
RUN = {"error", "own_error"}
RUN_TOLD = {"accuracy", "scales", "score", "findings", "summary", "notes"}
#: Of one machine and day.
LEFT_OUT = {"seconds", "version", "built", "provenance"}


def edges(graph: Any) -> list[str]:
    titles = [b["title"] for b in graph["boxes"]]
    return [
        f"{titles[e['source']]} > {titles[e['target']]} {e['value']} {e['label']}" for e in graph["edges"]
    ]


def numbers(overlay: Any) -> dict[str, Any]:
    def few(told: Any) -> dict[str, str]:
        return {
            k: " ".join(map(str, plain([*v.values()]))) for k, v in [*told.items()][:: 1 + len(told) // 8]
        }

    head = {k: v for k, v in overlay.items() if k not in {"nodes", "layers"}}
    return {**head, "nodes": few(overlay["nodes"]), "layers": few(overlay["layers"])}


def thin(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: thin(v) for k, v in value.items()}
    return [thin(v) for v in value[:: 1 + len(value) // 8]] if isinstance(value, list) else value


def drawn(study: Any, facts: Any, built: bool) -> dict[str, Any]:
    view = engine_view(facts, study.model)
    figures = {o["id"]: thin(charts.bars(view, o["id"])) for o in view["overlays"][:1]}
    return {
        "title": view["graph"]["title"], "subtitle": view["graph"]["subtitle"], "edges": thin(edges(view["graph"])),
        "overlays": [numbers(o) for o in view["overlays"] if not (built and o["id"] in RUN)], "bars": plain(figures),
    }  # fmt: skip


@scenes.subjects
def test_graphs_and_their_numbers_are_those_of_the_file(subject: str, golden: Any) -> None:
    study, built = scenes.study(subject), subject in {*scenes.SAMPLES, "cpu", "two_outputs"}
    *_, name = study
    facts = study[name].facts
    compiler = scenes.head(facts).partition(" · ")[2]
    told = without(
        plain(build_variant_document(facts, study.model, {name: "a title"})),
        LEFT_OUT | (RUN_TOLD if built else set()),
    )
    golden(
        f"view/{subject}.json",
        {
            scenes.head(facts): drawn(study, facts, built=built),
            "source": thin(edges(source_graph(study.model)))
            if subject in {"control_flow", "written", "cpu"}
            else [],
            f"document · {compiler}": thin(told),
            f"listing · {compiler}": {} if built else thin(layers_json(facts.engine)),
        },
        rel=1e-3,
    )


def around(study: Any, name: str, building: str = "") -> dict[str, Any]:
    return {
        "chips": [
            without(plain(c), {"stages"})
            for c in chrome.build_chips(study, baseline=chrome.pick_baseline(study), building=building)
        ],
        "status": [plain(s) for s in chrome.list_status(study, name)],
        "table": table.study_html(study).replace("</tr>", "</tr>\n").splitlines(),
        "data": chrome.describe_data(study),
    }


@pytest.mark.xdist_group("written")
def test_what_stands_around_the_graphs_is_what_the_file_says(golden: Any) -> None:
    """Of a study whose variants failed, are being built, or nobody has built; and of profiles that lack something."""
    study = scenes.study("written").state
    facts = study.results["fp16"]
    profile, error = facts.profile, BuildError("Cannot build: <b>. Try again.", details="a trace")
    missing = {k: v for k, v in study.results.items() if k == "fp32"}
    profiles = {
        "some layers": {"samples": dict([*profile.samples.items()][1:3])},
        "no layers": {"samples": {}},
        "no whole": {"total": np.zeros(0)},
        "no time": {"total": np.zeros(3), "samples": {k: np.zeros(3) for k in profile.samples}},
        "one run": {"total": profile.total[:1], "samples": {k: v[:1] for k, v in profile.samples.items()}, "runs": 1},
        "many runs": {"total": np.linspace(1, 2, 200), "runs": 200},
    }  # fmt: skip
    assert len(table.describe_failure(BuildError("", details="x" * 20_010))["details"]) == 20_000
    sections = {"as it is": around(study, "int8")}
    sections["failed"] = around(
        dataclasses.replace(study, results=missing, failures={"int8": error}), "int8", "fp16"
    )
    selection = SampleSelection((1, 2), study.data, study.task)
    sections["chosen"] = around(dataclasses.replace(study, selection=selection), "fp32")
    for name, fields in profiles.items():
        odd = dataclasses.replace(facts, profile=dataclasses.replace(profile, **fields))
        told = around(dataclasses.replace(study, results={**study.results, "fp16": odd}), "fp16")
        view = engine_view(odd, study.model)
        told |= {
            "overlays": [numbers(o) for o in view["overlays"]],
            "charts": thin(plain(charts.build_charts(view, odd))),
        }
        kept = ("status", "overlays", *(["charts"] if name in {"some layers", "no time"} else []))
        sections[name] = {k: told[k] for k in kept}
        sections[name]["table"] = told["table"][2]
    golden("view/around.json", sections, rel=1e-3)


CHOICES: tuple[dict[str, Any], ...] = (
    {"precision": "int8", "calibrator": "minmax", "target": "sm89"},
    {"precision": "fp4", "calibrator": "", "target": "sm75"},
    {"precision": "fp32", "calibrator": "percentile(97)", "target": "sm75",
     "pins": [{"pattern": "conv1", "precision": "int8"}], "sparsity": ["conv1"], "treatments": ["equalize"]},
    {"precision": "int4", "calibrator": "", "target": "sm120", "weights": "tensor"},
    {"precision": "nothing", "calibrator": "", "target": ""},
)  # fmt: skip


def test_what_can_be_chosen_is_what_the_file_says(golden: Any) -> None:
    models = {
        "sizes": rtlab.load(scenes.two_outputs()), "none": make_empty_model(),
        "open": rtlab.samples.load("dynamic_shapes").model,
    }  # fmt: skip
    sections: dict[str, Any] = {}
    for name, model in models.items():
        for i, choice in enumerate(CHOICES[: 5 if name == "sizes" else 1]):
            told = controls.build_controls(model, choice)
            reasons = {k: [f"{o['id']}: {o['reason']}" for o in told[k] if o["reason"]]
                       for k in ("precisions", "calibrators", "targets", "treatments")}  # fmt: skip
            asked = refusable(lambda c=choice: str(controls.choice_to_variant(c)))
            sections[f"{name} {i}"] = {**reasons, "sizes": told["sizes"], "wanted": asked}
        variant = Variant.of("int8", calibrator="minmax", target="sm89")
        sections[name] = {
            "choice": controls.build_choice(model, variant),
            "start": str(controls.default_variant(model)),
        }
    golden("view/choices.json", sections)


@pytest.mark.parametrize(
    "step",
    [
        3, {"word": ""}, {"words": 3}, {"view": 3}, {"view": {"zoom": 1}}, {"view": {"tab": "nothing"}},
        *({"places": p} for p in (3, {"left": [0, 0, 1, 1]}, {"node": 3}, {"node": ["a"] * 4})),
        *({"places": {"node": p}} for p in ([0, 0, 1], [0, 0, 1, 0], [0, 0, 0, 1], [0, 0, -1, 1], [0, 0, 1, 1, 1])),
        {"places": {"node": [0, float("nan"), 1, 1]}},
    ],
)  # fmt: skip
def test_what_is_no_step_is_refused(step: Any) -> None:
    good = {"words": "a", "view": {"tab": "timing", "folds": ("a",)}, "places": {"node": [-1, 0, 0.5, 0.25]}}
    assert parse_steps([good]) == [{**good, "view": {"tab": "timing", "folds": ["a"]}}]
    with pytest.raises(RtlabError, match="step 2"):
        parse_steps([good, step])
