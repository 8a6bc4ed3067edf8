"""Peers beside rtlab on the same models and samples: ``python tests/peers.py --with PYTHON [--page FILE]``.

PYTHON is an interpreter with ``nvidia-modelopt[onnx]``, ``huggingface_hub``, ``aimet-onnx`` and ``onnxruntime``, for
these want other versions of ``onnx`` than rtlab. Each peer runs in a process of its own, ended at its limit; what it
writes is run here. Everything has one processor. Every second held-out sample may be chosen by, of the others scores
are told.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

import pages
import rtlab
from rtlab.backends.reference import evaluator
from rtlab.core.data import CalibrationData
from rtlab.core.model import Model
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest
from rtlab.core.uncertainty import paired_shares
from rtlab.core.variant import Variant
from rtlab.experiments.experiment import Allowance, Rig, carry_out
from rtlab.experiments.sensitivity import SensitivitySearch
from rtlab.questions.sensitivity import Sensitivity, spearman

ROOT = Path(__file__).parents[1]
THERE = Path(__file__).with_name("peers_there.py")
#: Pictures to calibrate on, those that a peer ranks on, and points that may be lost.
FIT, RANKED, MAX_DROP = 256, 128, 0.5
#: Seconds that one thing may take.
LIMIT = 300
#: Trained samples, with the class of the script that trained it, if a twin in PyTorch can be made of it.
TRAINED = {
    "digits_outlier": ("make_digits_outlier.py", "DigitsOutlier"),
    "digits_inception": ("make_digits_inception.py", "DigitsInception"),
    "digits_mobilenet": ("make_digits_mobilenet.py", "DigitsMobilenet"),
    "digits_vit": ("make_digits_vit.py", "DigitsVit"),
}
#: Samples in FP16, and large graphs without a task, whose places are ranked on so many pictures.
HALVED, LARGE = ("fp16_overflow", *TRAINED), {"mobilenet_v2": 4, "resnet50": 4}
PARTS: dict[str, Sequence[str]] = {"int8": [*TRAINED], "fp16": HALVED, "rankings": [*TRAINED, *LARGE]}
ITSELF = "AIMET, against itself"
#: What peers do in INT8, as it is called on the page, with its settings.
INT8 = {
    "ModelOpt ONNX PTQ, max": ("ptq", {"method": "max"}),
    "ModelOpt ONNX PTQ, entropy": ("ptq", {"method": "entropy"}),
    "ModelOpt AutoQuantize (PyTorch twin)": ("twin", {"max_drop": MAX_DROP}),
    "AIMET, min_max": ("aimet", {"how": "min_max"}),
    "AIMET, tf_enhanced": ("aimet", {"how": "tf_enhanced"}),
    "AIMET, cross-layer equalization, min_max": ("aimet", {"how": "cle"}),
    "AIMET, SeqMSE": ("aimet", {"how": "seqmse"}),
    "AIMET, AdaRound": ("aimet", {"how": "adaround"}),
    "AIMET, automatic mixed precision": ("amp", {"max_drop": MAX_DROP}),
}


@dataclasses.dataclass(frozen=True)
class Row:
    """One way to a model of low precision, and what came of it.

    ``right`` is percent of the samples told of, ``gap`` the points that fp32 has more, with the 95 % interval of the
    paired difference after Bonett and Price; ``high`` what stays above the low precision, in the units of who tells.
    """

    way: str
    right: float | None
    gap: tuple[float, float, float] | None
    high: str
    runs: int | None
    seconds: float | None
    note: str = ""


def paired(one: NDArray[np.bool_], other: NDArray[np.bool_]) -> tuple[float, float, float]:
    """Points that ``one`` is above ``other`` on the same samples, and the ends of its 95 % interval."""
    won, lost = int((one & ~other).sum()), int((other & ~one).sum())
    ends = paired_shares(lost, won, len(one))
    return 100.0 * (won - lost) / len(one), ends.low, ends.high


def kept_high(model: onnx.ModelProto, names: Sequence[str]) -> tuple[str, ...]:
    """Which of the nodes ``names`` compute in FP32: those whose first output is of that type."""
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    graph = inferred.graph
    types = {v.name: v.type.tensor_type.elem_type for v in [*graph.value_info, *graph.output, *graph.input]}
    high = {n.name for n in graph.node if types.get(n.output[0]) == onnx.TensorProto.FLOAT}
    return tuple(n for n in names if n in high)


def agreement(truth: Mapping[str, float], ranking: Mapping[str, float]) -> tuple[float, int]:
    """Spearman's coefficient over the nodes that both know, and how many these are."""
    names = [n for n in truth if n in ranking]
    one, other = (np.array([known[n] for n in names]) for known in (truth, ranking))
    return spearman(one, other), len(names)


class Beside:
    """A folder for one sample, and the interpreter that has the peers."""

    def __init__(self, python: str, name: str, room: Path) -> None:
        self.python, self.name, self.folder = python, name, room / name
        self.folder.mkdir()
        self.sample = rtlab.samples.load(name, samples=LARGE.get(name, FIT))
        self.model, task = self.sample.model, self.sample.task
        (self.folder / "model.onnx").write_bytes(self.model.bytes())
        batches = [*self.sample.calibration.batches(self.model, 1)]
        self.fit = {k: np.concatenate([b[k] for b in batches]) for k in batches[0]}
        none: dict[str, Any] = {"labels": np.zeros(0)}
        chosen, told = ({**none}, {**none})
        if task is not None:
            arrays = {**task.data.arrays, "labels": task.labels}
            chosen, told = ({k: a[i::2] for k, a in arrays.items()} for i in (0, 1))
        self.labels = told.pop("labels")
        self.told = told
        np.savez(self.folder / "fit.npz", **self.fit)
        np.savez(self.folder / "chosen.npz", **chosen)
        np.savez(self.folder / "told.npz", **told, labels=self.labels)

    def ask(self, what: str, **settings: Any) -> dict[str, Any]:
        """What a peer says; with ``refused`` if it fails or takes too long."""
        command = [self.python, "-W", "ignore", str(THERE), what, str(self.folder), json.dumps(settings)]
        environment = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "VIRTUAL_ENV"}}
        try:
            ran = subprocess.run(
                command, capture_output=True, text=True, timeout=LIMIT, env=environment, check=False
            )
        except subprocess.TimeoutExpired:
            return {"refused": f"not done after {LIMIT} s"}
        if ran.returncode:
            return {
                "refused": " ".join(ran.stderr.strip().splitlines()[-1:])[:200] or f"exit {ran.returncode}"
            }
        found: dict[str, Any] = json.loads(ran.stdout.strip().splitlines()[-1])
        return found

    def answers(self, model: Model) -> NDArray[np.bool_]:
        """Which of the samples told of a model gets right, on rtlab's evaluator."""
        runner = evaluator()
        engine = runner.build(BuildRequest(model, Variant(), level="basic"), Silent())
        try:
            name = next(iter(self.model.outputs))
            data = CalibrationData(self.told)
            held = [
                runner.outputs(engine, b, (name,), progress=Silent())[name] for b in data.batches(model, 64)
            ]
        finally:
            runner.release(engine)
        return np.asarray(np.concatenate(held).argmax(-1) == self.labels)

    @property
    def plain(self) -> NDArray[np.bool_]:
        """Which of the samples the model in FP32 gets right."""
        return self.answers(self.model)

    def row(self, way: str, what: str, settings: Mapping[str, Any], names: Sequence[str] = ()) -> Row:
        """What a peer did, run here."""
        said = self.ask(what, **settings)
        if "refused" in said:
            return Row(way, None, None, "", None, None, said["refused"])
        high = f"{len(said['high'])} of {said['of']}" if "high" in said else "0"
        note = f"at {said['bits']:g} bits" if "bits" in said else ""
        if "drop" in said:
            note = f"{said['drop']:.1f} points lost on the samples that it chose by"
        if "predicted" in said:
            hits = np.asarray(said["predicted"]) == self.labels
            note = "; ".join(filter(None, [note, "run by the peer itself"]))
        else:
            written = self.folder / said["model"]
            hits = self.answers(rtlab.load(written))
            if names:
                kept = kept_high(onnx.load(written), names)
                high, note = f"{len(kept)} of {len(names)}", ", ".join(kept)
        return self._row(way, hits, high, said.get("runs"), said["seconds"], note)

    def _row(
        self, way: str, hits: NDArray[np.bool_], high: str, runs: int | None, seconds: float | None, note: str
    ) -> Row:
        return Row(way, 100 * float(hits.mean()), paired(self.plain, hits), high, runs, seconds, note)

    def own(self, precision: str, calibrators: Sequence[str | None]) -> list[Row]:
        """What rtlab prepares, and what it repairs."""
        task = self.sample.task
        study = rtlab.Study(self.model, data=CalibrationData(self.fit), task=task)
        rows, count = [], len(self.model.top)
        for calibrator in calibrators:
            name = " ".join(filter(None, [precision, calibrator]))
            began = time.perf_counter()
            choice = {"calibrator": calibrator} if calibrator else {}
            study.add(name, precision=precision, backend="onnxruntime", **choice)
            hits = self.answers(study.prepare(name).emulation)
            rows.append(
                self._row(f"rtlab, {name}", hits, f"0 of {count}", None, time.perf_counter() - began, "")
            )
            study.run([name], compare=False, budget_s=0)
            began = time.perf_counter()
            found = study.repair(name, MAX_DROP)
            taken = time.perf_counter() - began
            hits = self.answers(study.prepare(found.repaired if found.changes else name).emulation)
            what = "; ".join(c.what for c in found.changes) or "nothing changed"
            high = f"{len(found.kept_high)} of {count}"
            note = what + (f": {', '.join(found.kept_high)}" if 0 < len(found.kept_high) <= 5 else "")
            rows.append(self._row(f"rtlab, {name} repaired", hits, high, found.runs, taken, note))
        return rows

    def rankings(self) -> list[list[Any]]:
        """Rankings beside the truth: who, Spearman, nodes, truth's reliability, samples, x plain, seconds, note."""
        study = rtlab.Study(self.model, data=CalibrationData(self.fit))
        study.add("int8", precision="int8", calibrator="minmax", backend="onnxruntime")
        emulation = study.prepare("int8").emulation

        def looked(arrays: Mapping[str, Any], **choice: Any) -> Sensitivity:
            data = CalibrationData(dict(arrays))
            search = SensitivitySearch("int8", self.model, emulation, data, asks="only", **choice)
            return carry_out(search, Rig(evaluator(), allowance=Allowance(LIMIT)))

        own = looked(self.fit)
        count = min(RANKED, len(next(iter(self.fit.values()))))
        every = looked({k: a[:count] for k, a in self.fit.items()}, verify=None)
        truth = looked(self.told or self.fit, verify=None, reach=2)
        effects, sure = {g.node: g.known for g in truth.ranking}, truth.reliability

        found = []
        for who, one in {"rtlab.sensitivity": own, "rtlab, every place turned alone": every}.items():
            matched = agreement(effects, {g.node: -float(g.rank) for g in one.ranking})
            found.append([who, *matched, sure, one.samples, one.cost_x_plain, one.seconds, ""])
        for what, rankings in {
            "sensitivity": {"ranking": "AIMET, each layer alone"},
            "debugger": {
                "own": "ONNX Runtime's debugger, rounding of each value",
                "arrived": "ONNX Runtime's debugger, arrived error of each value",
            },
        }.items():
            said = self.ask(what, samples=count)
            if "refused" in said:
                found += [
                    [who, None, 0, sure, count, None, None, said["refused"]] for who in rankings.values()
                ]
                continue
            costs = [count, said["seconds"] / said["plain"], said["seconds"], ""]
            found += [[who, *agreement(effects, said[key]), sure, *costs] for key, who in rankings.items()]
            if said.get("others"):
                others = {n: v for n, v in said["others"].items() if n in effects}
                found.append([ITSELF, *agreement(others, said["ranking"]), None, *costs])
        return found


# --- the page ---------------------------------------------------------------------------------------------------

_HEAD = """# Accuracy beside peers

{date}, {versions}. `python tests/peers.py --with PYTHON --page docs/peers-accuracy.md` runs all of it anew.
"""

_HOW = """## How it is measured

Every way has one processor, which is not kept free of other work, so seconds tell orders, not percents.
Trained samples calibrate on {fit} pictures of the training half. Whoever chooses by a score does so on every second
held-out picture; percent right are of the others, {told}, on ONNX Runtime's CPU without fusions that change numbers
(PyTorch or AIMET's own simulation where a row says so). "behind fp32" is the paired difference in points with its
95 % interval (Bonett and Price). Seconds hold calibration, search and runs, not imports, nor the building of the
variant that rtlab's repair starts from; that repair also finds out who is guilty and why.

Placement differs: rtlab rounds the inputs and weights of what TensorRT computes in INT8, symmetrically; ModelOpt does
nearly so; AIMET rounds outputs too, asymmetrically, and was given the configuration "default_config_per_channel".
AIMET's mixed precision counts quantizers above 8 bits, AutoQuantize weighted modules, the others nodes of the graph.

Peers have their default settings but for these: AIMET's AdaRound takes 1,000 steps a layer where its documentation
recommends 10,000; ModelOpt's high precision is FP32. A peer that takes more than {limit} s is ended.
"""

_INSTALLED = """## What installs

- `nvidia-modelopt[onnx]` and `aimet-onnx` install together on Python 3.11 without a GPU, and bring a CUDA build of
  PyTorch and CuPy that is not used.
- `nvidia-modelopt[onnx]` pins `onnx~=1.21.0` and installs `onnxruntime-gpu`, `aimet-onnx` installs `onnxruntime`;
  both own one folder, and `pip install --no-deps --force-reinstall onnxruntime` settles which is imported. What is
  imported here is newer than the `onnxruntime-gpu~=1.24.2` that ModelOpt asks for.
- `modelopt.torch.quantization` (AutoQuantize) imports `huggingface_hub`, which the extra `onnx` does not install.
- AutoQuantize reads PyTorch modules alone. Digits samples have such a twin, the class of the script that trained
  them; its weights come from the ONNX file and its logits are checked against it. The rest have none.
- AutoQuantize is told an average of bits, not a loss of accuracy: 8.1, 9, 10, 12, 14 are tried until it suffices.
"""


def _number(value: float | None, form: str = ".2f") -> str:
    return "–" if value is None or np.isnan(value) else format(value, form)


def _scores(rows: Sequence[Row]) -> list[str]:
    def gap(row: Row) -> str:
        return "–" if row.gap is None else "{:.2f} ({:.2f} to {:.2f})".format(*row.gap)

    heads = ["way", "right, %", "behind fp32", "kept high", "runs", "seconds", "what"]
    cells = [
        (
            r.way, _number(r.right), gap(r), r.high or "–", "–" if r.runs is None else r.runs,
            _number(r.seconds, ".1f"), r.note.replace("|", "/"),
        )
        for r in rows
    ]  # fmt: skip
    return pages.rows(heads, cells)


def near(row: Row) -> bool:
    """Whether a row lost no more than it may, or the samples cannot tell."""
    return row.gap is not None and (row.gap[0] <= MAX_DROP or row.gap[1] <= 0)


def verdict(rows: Sequence[Row]) -> str:
    """Who comes as near to fp32 as is asked, peers beside rtlab's repairs: the interval decides, not the digits."""
    good = [r for r in rows if near(r)]
    own = [r for r in rows if r.way.startswith("rtlab") and r.way.endswith("repaired")]
    peers = [r for r in good if not r.way.startswith("rtlab")]
    lost = [r.way for r in own if r not in good]
    said = f"Within {MAX_DROP} points, or where the samples cannot tell: "
    said += ", ".join(r.way for r in good) or "nobody"
    said += "."
    if lost and peers:
        said += f" **Peers are better here**: {', '.join(lost)} is not among them."
    return said


def _tables(kept: Mapping[str, Any]) -> list[tuple[str, list[Row]]]:
    parts = {"INT8": "int8", "FP16": "fp16"}
    return [
        (f"{t}: {n}", [Row(**r) for r in g]) for t, p in parts.items() for n, g in kept.get(p, {}).items()
    ]


def better(rows: Sequence[Row]) -> list[str]:
    """What peers do better in one table: by the digits, beside the worst and the slowest of what rtlab did."""

    def best(floor: float, among: Sequence[Row]) -> str:
        over = sorted(
            (r for r in among if r.right is not None and r.right > floor), key=lambda r: -(r.right or 0)
        )
        return ", ".join(f"{r.way} ({r.right:.2f})" for r in over)

    peers = [r for r in rows if r.right is not None and r.way != "fp32" and not r.way.startswith("rtlab")]
    own = [r for r in rows if r.way.startswith("rtlab") and r.right is not None]
    plain, mended = ([r for r in own if r.way.endswith("repaired") is repaired] for repaired in (False, True))
    found = []
    if mended and (over := best(low := min(r.right or 0 for r in mended), peers)):
        found.append(f"more right than rtlab's repair ({low:.2f} %): {over}")
    if plain and (over := best(plain[0].right or 0, [r for r in peers if r.runs is None])):
        found.append(
            f"more right, without a search, than {plain[0].way}, without repair ({plain[0].right:.2f} %): {over}"
        )
    slow = max((r.seconds or 0 for r in mended), default=0)
    swift = [
        f"{r.way} ({r.seconds:.1f} s)"
        for r in peers
        if near(r) and r.seconds is not None and r.seconds < slow
    ]
    if swift:
        found.append(
            f"as near to fp32 as is asked, and quicker than rtlab's repair ({slow:.1f} s): {', '.join(swift)}"
        )
    return found


def lead(kept: Mapping[str, Any]) -> list[str]:
    """Where a peer is better than rtlab, and what did not finish: one line for each table and each model ranked."""
    lines = []
    for title, rows in _tables(kept):
        lines.append(f"- **{title}**: {'; '.join(better(rows)) or 'in nothing'}.")
        lines += [f"- **{title}**: {r.way} has no number: {r.note}." for r in rows if r.right is None]
    for name, ranked in kept.get("rankings", {}).items():
        own, *others = (r for r in ranked if r[0] == "rtlab.sensitivity" or not r[0].startswith("rtlab"))
        known = [r for r in others if r[1] is not None and r[0] != ITSELF]
        nearer = [f"{r[0]} ({r[1]:.2f} over {r[2]} of {own[2]} nodes)" for r in known if r[1] > own[1]]
        cheaper = [f"{r[0]} ({r[5]:.1f})" for r in known if r[5] < own[5]]
        swift = [f"{r[0]} ({r[6]:.1f} s)" for r in known if r[6] < own[6]]
        said = [f"nearer to the truth than rtlab ({own[1]:.2f}): {', '.join(nearer)}"] * bool(nearer)
        said += [f"fewer plain inferences than rtlab ({own[5]:.1f}): {', '.join(cheaper)}"] * bool(cheaper)
        said += [f"quicker than rtlab ({own[6]:.1f} s): {', '.join(swift)}"] * bool(swift)
        lines.append(f"- **The guilty of {name}**: {'; '.join(said) or 'in nothing'}.")
        lines += [
            f"- **The guilty of {name}**: {r[0]} has no number: {r[7]}." for r in others if r[1] is None
        ]
    for part, names in PARTS.items():
        gone = [n for n in names if n not in kept.get(part, {})]
        if gone:
            lines.append(f"- **Not run to the end, and left out**: {part} of {', '.join(gone)}.")
    return lines


def page(kept: Mapping[str, Any]) -> str:
    """The page of what was found."""
    versions = ", ".join(f"{k} {v}" for k, v in kept["versions"].items())
    lines = pages.flow(_HEAD.format(date=kept["date"], versions=versions))
    lines += ["## Where peers are better", "", _LEAD, "", *lead(kept), ""]
    lines += pages.flow(_HOW.format(fit=FIT, told=kept["told"], limit=LIMIT)) + pages.flow(_INSTALLED)
    for title, rows in _tables(kept):
        lines += [f"## {title}", "", verdict(rows), "", *_scores(rows)]
    lines += ["## Who is guilty", ""]
    lines += pages.flow(_RANKED)
    heads = [
        "model",
        "ranking",
        "Spearman",
        "nodes",
        "the truth's reliability",
        "samples",
        "x plain",
        "seconds",
        "what",
    ]
    cells = [
        (m, r[0], _number(r[1]), r[2], _number(r[3]), r[4], _number(r[5], ".1f"), _number(r[6], ".1f"), r[7])
        for m, rows in kept.get("rankings", {}).items()
        for r in rows
    ]
    return "\n".join([*lines, *pages.rows(heads, cells)]).rstrip() + "\n"


_LEAD = (
    "Told apart by the digits, so that a difference of one sample counts; whether it is more than chance says the "
    "interval in the table. rtlab stands here with the worst and the slowest of its repairs. What is true of who is "
    "guilty is found with rtlab's own rounding, which favours rtlab."
)
_RANKED = """
The truth is the energy of the outputs' error with the places of one node rounded and nothing else, by real runs with
rtlab's INT8 and minmax, on the held-out samples told of; where a model has no task, on the samples that were ranked on,
so that rtlab's row "every place turned alone" is the truth itself there. rtlab.sensitivity takes as many samples as its
own reliability needs. Peers round other places, so a ranking that is right for their quantization can differ from this
truth; "against itself" is AIMET's ranking beside AIMET's effects on the samples told of, over the same nodes. Costs are
in plain inferences of the same samples by one thread. Sessions are part of a peer's cost and, being opened once, not of
rtlab's, which on networks this small is most of the difference; seconds have them on both sides, rtlab's verification
by real runs too. Costs are rough: two runs gave some up to 18 times apart on networks of digits, whose plain inference
is short, and up to three times on the large graphs, while no Spearman coefficient moved.
"""


def main() -> None:
    """Run what was asked for, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--with", dest="python", required=True, help="a Python that has the peers")
    parser.add_argument("--kept", type=Path, default=Path("peers.json"), help="where results are kept")
    parser.add_argument("--page", type=Path, help="write the page to this file")
    parser.add_argument("--only", nargs="*", help="parts to run: int8, fp16, rankings; none: just the page")
    parser.add_argument("--names", nargs="*", help="samples to run")
    given = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    kept = json.loads(given.kept.read_text("utf-8")) if given.kept.exists() else {}
    for part, names in PARTS.items():
        for name in names:
            chosen = (given.only is None or part in given.only) and (not given.names or name in given.names)
            if not chosen:
                continue
            with tempfile.TemporaryDirectory(prefix="peers-") as room:
                beside = Beside(given.python, name, Path(room))
                kept["versions"] = beside.ask("versions")["versions"] | {"rtlab": rtlab.__version__}
                kept["date"] = str(datetime.datetime.now(datetime.timezone.utc).date())
                sys.stderr.write(f"{part} {name}\n")
                if len(beside.labels):
                    kept["told"] = len(beside.labels)
                kept.setdefault(part, {})[name] = _part(beside, part)
            given.kept.write_text(json.dumps(kept, indent=1), "utf-8")
    if given.page:
        given.page.write_text(page(kept), "utf-8")


def _part(beside: Beside, part: str) -> list[Any]:
    if part == "rankings":
        return beside.rankings()
    plain = beside.plain
    rows = [Row("fp32", 100 * float(plain.mean()), None, "", None, None)]
    if part == "int8":
        script, net = TRAINED[beside.name]
        twin = {"script": str(ROOT / "sample_models" / script), "net": net}
        rows += [beside.row(way, what, {**s, **twin}) for way, (what, s) in INT8.items()]
        rows += beside.own("int8", ["auto", "minmax"])
    else:
        names = [n.name for n in onnx.load_from_string(beside.model.bytes()).graph.node]
        for way, data in {"with data": True, "random data": False}.items():
            rows.append(beside.row(f"ModelOpt AutoCast, {way}", "autocast", {"data": data}, names))
        rows += beside.own("fp16", [None])
    return [dataclasses.asdict(r) for r in rows]


if __name__ == "__main__":
    main()
