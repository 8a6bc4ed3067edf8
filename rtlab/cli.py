"""The command line: ``rtlab lab``, ``rtlab inspect``, ``rtlab report``, ``rtlab backends``."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rtlab.errors import ModelError, RtlabError

if TYPE_CHECKING:
    from rtlab.study import Result, Study

#: Exit codes: the command line was wrong (argparse's own), or the work failed.
_USAGE, _FAILED = 2, 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    parser = _parser()
    given = parser.parse_args(arguments)
    if given.command is None:
        parser.print_help()
        return _USAGE
    try:
        return int(given.work(given))
    except RtlabError as error:
        if getattr(given, "json", False):
            print(json.dumps({"error": {"kind": type(error).__name__, "message": str(error)}}))
        print(f"rtlab: {error}", file=sys.stderr)
        return _FAILED
    except KeyboardInterrupt:
        print("rtlab: stopped", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rtlab", description="See what TensorRT does to an ONNX model.", allow_abbrev=False
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")

    lab = commands.add_parser("lab", help="open JupyterLab on a copy of the notebooks")
    lab.add_argument(
        "folder", nargs="?", default="rtlab-notebooks", help="where the copy goes (default: %(default)s)"
    )
    lab.add_argument("--port", type=int, default=None, help="port of the server on this machine")
    lab.add_argument(
        "--no-browser", action="store_true", help="print the address instead of opening a browser"
    )
    lab.set_defaults(work=_lab)

    look = commands.add_parser("inspect", help="build one variant of a model and list its layers")
    look.add_argument("--precision", default="fp32", help="fp32, fp16 or int8 (default: %(default)s)")
    look.add_argument("--json", action="store_true", help="print one JSON object")
    _model_arguments(look)
    look.set_defaults(work=_inspect)

    told = commands.add_parser("report", help="build variants of a model and write them as one HTML file")
    told.add_argument("-o", "--output", default="report.html", help="the file (default: %(default)s)")
    told.add_argument(
        "--precision",
        action="append",
        help="fp32, fp16 or int8; repeat it for several variants (default: fp32)",
    )
    _model_arguments(told)
    told.set_defaults(work=_report)

    listed = commands.add_parser("backends", help="what is available here, and why not")
    listed.add_argument("--json", action="store_true", help="print one JSON object")
    listed.set_defaults(work=_backends)
    return parser


def _model_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="an ONNX file, or the name of a sample")
    parser.add_argument("--calibrator", default=None, help="minmax or entropy2, for int8 (default: entropy2)")
    parser.add_argument(
        "--data", default=None, metavar="D.npz", help="one array per model input, samples first"
    )
    parser.add_argument("--target", default=None, help="cpu, sm86, sm89, sm120, ... (default: the backend's)")
    parser.add_argument(
        "--backend", default=None, help="tensorrt-rtx or onnxruntime (default: the best available)"
    )
    parser.add_argument(
        "--shape", action="append", default=[], metavar="NAME=1x3x224x224", help="size of a dynamic input"
    )
    parser.add_argument("--no-run", action="store_true", help="only build: no times, no errors")


def _backends(given: argparse.Namespace) -> int:
    from rtlab.study import available

    table = available()
    if given.json:
        print(json.dumps({name: dataclasses.asdict(a) for name, a in table.items()}))
        return 0
    width = max(len(n) for n in table)
    for name, a in table.items():
        print(f"{name:<{width}}  {'yes' if a.ok else 'no '}  {a.version or a.reason}")
    return 0


def _inspect(given: argparse.Namespace) -> int:
    from rtlab.view.document import document

    study = _study(given, {"it": given.precision})
    result = study["it"]
    if given.json:
        print(json.dumps(document(result, study.model), ensure_ascii=False, allow_nan=False))
    else:
        _print(result, study)
    return 0


def _report(given: argparse.Namespace) -> int:
    precisions = given.precision or ["fp32"]
    print(_study(given, {p: p for p in precisions}).to_html(given.output))
    return 0


def _study(given: argparse.Namespace, precisions: Mapping[str, str]) -> Study:
    """The model's study with these variants, built."""
    study = _opened(given)
    for name, precision in precisions.items():
        study.add(
            name,
            precision=precision,
            calibrator=given.calibrator,
            target=given.target,
            backend=given.backend,
        )
    return study.run(compare=not given.no_run)


def _opened(given: argparse.Namespace) -> Study:
    from rtlab import samples
    from rtlab.core.data import CalibrationData
    from rtlab.core.model import load
    from rtlab.study import Study

    data = CalibrationData.read(given.data) if given.data else None
    if not Path(given.model).exists() and given.model in samples.names():
        if given.shape:
            raise ModelError("Cannot apply --shape to a sample: its shapes are set. Give the path of a file.")
        sample = samples.load(given.model)
        return Study(sample.model, data=data or sample.calibration, task=sample.task)
    return Study(load(given.model, shapes=_shapes(given.shape)), data=data)


def _shapes(given: Sequence[str]) -> dict[str, tuple[int, ...] | int]:
    shapes: dict[str, tuple[int, ...] | int] = {}
    for item in given:
        name, _, text = item.rpartition("=")
        try:
            sizes = tuple(int(d) for d in text.lower().replace("×", "x").split("x"))
        except ValueError:
            sizes = ()
        if not name or not sizes:
            raise ModelError(
                f'Cannot read --shape "{item}": it is not NAME=1x3x224x224. Write sizes joined by x.'
            )
        shapes[name] = sizes
    return shapes


def _print(result: Result, study: Study) -> None:
    from rtlab.view.table import number

    engine = result.engine
    print(f"{study.model.name} · {result.variant.name}: {len(result.prepared.model.top)} nodes → "
          f"{len(engine.layers) - engine.sync} {engine.detail}s"
          + (f" and {engine.sync} steps that order the streams" if engine.sync else ""))  # fmt: skip
    print(f"compiled: {engine.title}; building it took {engine.seconds:.2g} s (measured here)")
    if result.timing:
        print(f"whole inference: {number(result.timing.shown, 'ms')} ({result.timing.origin})")
    if result.score:
        print(f"{result.score.name}: {result.score.value:.2f} {result.score.unit} "
              f"(measured on {result.score.samples} held-out samples, {result.score.source})")  # fmt: skip
    rows = [_line(result, study, layer) for layer in engine.layers]
    time = f"{result.timing.processor} time" if result.timing else "time"
    _columns(("step", "kind", "operators", "type", time, "SQNR"), rows)
    if result.mapping.missing:
        print("\nnodes without a layer")
        _columns(
            ("node", "reason"), [(study.model.by_id[m.node].title, m.reason) for m in result.mapping.missing]
        )


def _line(result: Result, study: Study, layer: Any) -> tuple[str, ...]:
    from rtlab.view.table import number

    nodes = sorted((study.model.by_id[n] for n in result.mapping.nodes(layer.id)), key=lambda n: n.index)
    time = result.layer_times.get(layer.id)
    errors = [e.sqnr for n in nodes if result.accuracy and (e := result.accuracy.of(n.id))]
    sqnr = "equal" if errors and errors[-1] == float("inf") else number(errors[-1], "dB") if errors else "—"
    shared = f" /{time.shared}" if time and time.shared > 1 else ""
    return (
        str(layer.index + 1),
        layer.kind,
        "·".join(n.op for n in nodes) or "—",
        layer.precision,
        number(time.median if time else None, "ms") + shared,
        sqnr,
    )


def _columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [min(60, max(len(r[i]) for r in (head, *rows))) for i in range(len(head))]
    for row in (head, *rows):
        print(
            "  ".join(
                f"{c if len(c) <= 60 else c[:59] + '…':<{w}}" for c, w in zip(row, widths, strict=True)
            ).rstrip()
        )


def _lab(given: argparse.Namespace) -> int:
    folder = Path(given.folder).absolute()
    first = copy_notebooks(folder)
    command = [
        sys.executable, "-m", "jupyter", "lab", "--ip=127.0.0.1", f"--ServerApp.root_dir={folder}",
        f"--LabApp.default_url=/lab/tree/{first}",
    ]  # fmt: skip
    if given.port is not None:
        command += [f"--ServerApp.port={given.port}"]
    if given.no_browser:
        command += ["--no-browser"]
    if getattr(os, "geteuid", lambda: 1)() == 0:
        # Jupyter refuses to serve as root, which is the usual user in a container.
        command += ["--allow-root"]
    # JupyterLab asks on its first start whether to fetch news, over the corner of the notebook.
    ours = str(Path(__file__).parent / "static")
    os.environ["JUPYTER_CONFIG_PATH"] = os.pathsep.join(
        filter(None, (ours, os.environ.get("JUPYTER_CONFIG_PATH")))
    )
    print(f"rtlab: notebooks are in {folder}; stop with Ctrl-C", file=sys.stderr)
    if os.name == "posix":
        # In our place, so that whoever ends this command ends the server.
        os.execv(sys.executable, command)  # noqa: S606 - the interpreter that runs us, with a fixed list
    return subprocess.call(command)


def copy_notebooks(folder: Path) -> str:
    """Copy the packaged notebooks that are not there yet; returns the name of the first one.

    A notebook that exists is the user's own by now and stays as it is.

    Raises:
        ModelError: the installation carries no notebooks.
    """
    here = Path(__file__).parent
    home = next((h for h in (here / "_share" / "notebooks", here.parent / "notebooks") if h.is_dir()), None)
    names = sorted(p.name for p in home.glob("*.ipynb")) if home else []
    if home is None or not names:
        raise ModelError("Cannot open the notebooks: this installation carries none. Install rtlab again.")
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        if not (folder / name).exists():
            shutil.copyfile(home / name, folder / name)
    return names[0]


if __name__ == "__main__":
    sys.exit(main())
