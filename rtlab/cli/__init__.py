"""The command line: ``rtlab`` with ``lab``, ``inspect``, ``read``, ``compare``, ``prepare``, ``report`` and others."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar, cast

from rtlab.cli import budget, checking, opening, printing, sweeping, wheelhouse
from rtlab.cli.parser import create_parser
from rtlab.core.phrases import pluralize
from rtlab.errors import (
    Cancelled,
    ModelError,
    ReadError,
    RtlabError,
    Unavailable,
    boundary,
    check_memory_limit,
)

if TYPE_CHECKING:
    from rtlab.api import Study


def run(args: argparse.Namespace) -> int:
    """List, add or remove."""
    from rtlab.backends import compilers
    from rtlab.core.progress import Terminal
    from rtlab.documents.numbers import format_bytes

    match args.action:
        case "add":
            before = {c.version for c in compilers.known()}
            with contextlib.closing(Terminal()) as progress:
                compiler = compilers.add(args.version, source=args.source, progress=progress)
            message = (
                f"{compiler.version} is here already: {compiler.where}"
                if compiler.version in before
                else f"added {compiler.version}: {format_bytes(compiler.nbytes)} in {compiler.where}"
            )
        case "remove":
            message = f"removed {compilers.remove(args.version).version}"
        case _:
            return _list_releases(args)
    print(json.dumps({"done": message}) if args.json else message)
    return 0


def _list_releases(args: argparse.Namespace) -> int:
    from rtlab.backends import compilers
    from rtlab.documents.numbers import format_bytes

    rows, lines = [], []
    for compiler in compilers.known():
        trial = compiler.tried()
        routes = None if trial.routes is None else list(trial.routes)
        rows.append(
            {
                "version": compiler.version,
                "backend": compiler.backend,
                "own": compiler.own,
                "recorded": compiler.recorded,
                "where": compiler.where,
                "bytes": compiler.nbytes,
                "refusal": trial.refusal,
                "routes": routes,
            }
        )
        works = trial.refusal or f"works, {_describe_routes(routes)}"
        origin_note = f" ({compiler.words})" if compiler.path is None else ""
        size = format_bytes(compiler.nbytes)
        lines.append(f"{compiler.version:<12} {size:>7}  {works}{origin_note}  {compiler.where}")
    if args.json:
        print(json.dumps({"folder": str(compilers.folder()), "compilers": rows}))
    else:
        print("\n".join(lines) or "none: add one with rtlab compilers add 1.7")
    return 0


def _describe_routes(routes: Sequence[str] | None) -> str:
    if routes is None:
        return "knows no build routes"
    return f"offers {pluralize(len(routes), 'build route')}" if routes else "offers no build routes"


#: The folder of the notebooks, in the one that JupyterLab shows.
TOUR = "rtlab-notebooks"
#: As ``python -m jupyterlab``, which would look for modules in the current folder first.
_START = (
    "import sys; del sys.path[0]; import runpy; "
    "runpy.run_module('jupyterlab', run_name='__main__', alter_sys=True)"
)


def lab(args: argparse.Namespace) -> int:
    """Open JupyterLab on the user's folder with the tour in it, in place of this process where the system can.

    Raises:
        RtlabError: it is not installed, or the notebooks cannot be written.
    """
    if importlib.util.find_spec("jupyterlab") is None:
        raise Unavailable(
            'Cannot open JupyterLab: package "jupyterlab" is not installed. Run pip install jupyterlab ipywidgets '
            "anywidget plotly netron."
        )
    folder = Path(args.folder).absolute()
    tour = folder if (folder / _list_notebooks()[0].name).is_file() else folder / TOUR
    first = copy_notebooks(tour)
    # Not "jupyter lab", which runs the first jupyter-lab of PATH: that of another environment where this one is not
    # activated, whose kernels then lack rtlab or have another version of it.
    command = [
        sys.executable, "-c", _START, "--ip=127.0.0.1", f"--ServerApp.root_dir={folder}",
        f"--LabApp.default_url=/lab/tree/{first.relative_to(folder).as_posix()}",
        # The other manager queries PyPI as soon as it is shown.
        "--LabApp.extension_manager=readonly",
    ]  # fmt: skip
    if args.port is not None:
        command += [f"--ServerApp.port={args.port}"]
    if args.no_browser:
        command += ["--no-browser"]
    if getattr(os, "geteuid", lambda: 1)() == 0:
        # Jupyter refuses to serve as root, which is the usual user in a container.
        command += ["--allow-root"]
    # JupyterLab asks on its first start whether to fetch news, over the corner of the notebook.
    config_folder = str(Path(__file__).parents[1] / "static")
    os.environ["JUPYTER_CONFIG_PATH"] = os.pathsep.join(
        filter(None, (config_folder, os.environ.get("JUPYTER_CONFIG_PATH")))
    )
    # It asks npm, where there is one, for a folder; npm asks its registry for news of itself now and then.
    os.environ.setdefault("NPM_CONFIG_UPDATE_NOTIFIER", "false")
    print(f"rtlab: JupyterLab shows {folder}, notebooks are in {tour}; stop with Ctrl-C", file=sys.stderr)
    if os.name == "posix":
        # In place of this process, so that ending this command ends the server.
        os.execv(sys.executable, command)  # noqa: S606 - the interpreter that runs us, with a fixed list
    return subprocess.call(command)


def _list_notebooks() -> list[Path]:
    """The packaged notebooks, in their order.

    Raises:
        ModelError: the installation carries none.
    """
    here = Path(__file__).parents[1]
    for folder in (here / "_share" / "notebooks", here.parent / "notebooks"):
        if paths := sorted(folder.glob("*.ipynb")):
            return paths
    raise ModelError("Cannot open the notebooks: this installation carries none. Install rtlab again.")


def copy_notebooks(folder: Path) -> Path:
    """Copy the packaged notebooks that are not there yet; returns the first one's path.

    A notebook that exists is the user's own by now and stays as it is.

    Raises:
        ModelError: the installation carries no notebooks.
        RtlabError: they cannot be written there.
    """
    paths = _list_notebooks()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path in paths:
            with contextlib.suppress(FileExistsError), (folder / path.name).open("xb") as file:
                file.write(path.read_bytes())
    except OSError as error:
        raise RtlabError(
            f'Cannot copy the notebooks to "{folder}": {error.strerror}. Name a folder that is yours to write to: '
            "rtlab lab FOLDER."
        ) from error
    return folder / paths[0].name


#: Control characters but for the tabulator and the end of a line, and what turns the direction of writing.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def clean(text: str) -> str:
    """The text with control characters in their escaped form."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


class CleanStream:
    """A stream of text to which ``clean`` text is written; all else is that of the stream."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write cleaned text; returns the length of ``text``."""
        self._stream.write(clean(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def clean_output() -> Iterator[None]:
    """Standard output and standard error are cleaned meanwhile."""
    streams = sys.stdout, sys.stderr
    # Python has none where it was closed before the start.
    sys.stdout, sys.stderr = (cast("TextIO", s and CleanStream(s)) for s in streams)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = streams


T = TypeVar("T")
#: Exit codes: the command line was wrong (argparse's own), or the work failed.
_USAGE, _FAILED = 2, 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    argument_parser = create_parser(
        {
            "lab": lab,
            "inspect": _inspect,
            "read": _read,
            "compare": _compare,
            "why": _why,
            "bisect": _bisect,
            "advise": _advise,
            "sensitivity": _sensitivity,
            "repair": _repair,
            "prepare": _prepare,
            "report": _report,
            "check": checking.run,
            "sweep": sweeping.sweep,
            "store": sweeping.manage,
            "backends": _backends,
            "compilers": run,
            "doctor": _doctor,
            "wheelhouse": wheelhouse.run,
            "completion": lambda args: _print_completion(argument_parser, args.shell),
        }
    )
    args = argument_parser.parse_args(arguments)
    args.program = arguments is None
    if args.command is None:
        argument_parser.print_help()
        return _USAGE
    for stream in (sys.stdout, sys.stderr):
        # Names from files hold what a terminal's encoding may not; a table with question marks is still a table.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    with clean_output():
        return _run_command(args)


def _run_command(args: argparse.Namespace) -> int:
    try:
        with boundary(f'do "rtlab {args.command}"'), budget.enforce_budget(args):
            if hasattr(args, "model"):
                check_memory_limit(f'do "rtlab {args.command}"')
            return int(args.work(args))
    except RtlabError as error:
        if getattr(args, "json", False):
            error_info = {"kind": type(error).__name__, "message": opening.rewrite_for_cli(str(error))}
            # What could not be written may be this output.
            with contextlib.suppress(OSError):
                print(json.dumps({"error": error_info}), flush=True)
        print(f"rtlab: {opening.rewrite_for_cli(str(error))}", file=sys.stderr)
        return _FAILED
    except KeyboardInterrupt:
        print("rtlab: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of the output, such as head, has ended; the interpreter must not try to flush again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _backends(args: argparse.Namespace) -> int:
    from rtlab.api import available

    table = available()
    if args.json:
        printing.print_json(table)
        return 0
    width = max(len(n) for n in table)
    for name, a in table.items():
        print(f"{name:<{width}}  {'yes' if a.ok else 'no '}  {a.version or a.reason}")
    return 0


def _inspect(args: argparse.Namespace) -> int:
    study = opening.plan_study(args, [args.precision])
    if (args.labels or args.metric) and args.precision != "fp32":
        # What a score is compared with.
        study.add("fp32", target=args.target, backend=args.backend, compiler=args.compiler)

    def show(notes: Sequence[str] = ()) -> None:
        if args.precision in study.state.results:
            printing.print_variant(study[args.precision], study)
        else:
            printing.print_unbuilt(study, notes)

    # In the place of a command that does not hear of the end of its time.
    args.show = None if args.json or args.ask else show
    try:
        opening.run(study, args)
    except Cancelled as error:
        if args.deadline is not None and args.deadline.is_over and args.show is not None:
            show(error.notes)
        raise
    finally:
        args.show = None
    saved_path = None if args.save is None else study.save_build(args.precision, args.save)
    if not _print_answer(args, study, args.precision):
        printing.print_variant(study[args.precision], study)
        if saved_path is not None:
            print(
                f"wrote {saved_path}; it has no weights, and opens anywhere with rtlab read {saved_path.name}"
            )
    return 0


def _read(args: argparse.Namespace) -> int:
    from rtlab.api import read
    from rtlab.web.report.html import write_html

    if "-" in args.files and sys.stdin is None:
        raise ReadError("Cannot read what is piped in: standard input is closed. Pipe a file in, or name it.")
    piped_bytes = sys.stdin.buffer.read() if "-" in args.files else None
    files = [f for f in args.files if f != "-"]
    study = read(*files, text=piped_bytes, model=args.model, optimization_profile=args.optimization_profile)
    if args.output_html:
        write_html(study.state, args.output_html)
    if not _print_answer(args, study, "engine"):
        printing.print_variant(study["engine"], study)
        printing.print_assessment(study["engine"])
    return 0


def _print_answer(args: argparse.Namespace, study: Study, name: str) -> bool:
    """Print one question of a variant, or all of it as JSON; False where neither was wanted."""
    from rtlab.analyses import score
    from rtlab.analyses.titles import get_variant_titles
    from rtlab.web.page.document import build_variant_document

    if args.ask:
        answer = study.ask(args.ask, variant=name)
        if args.json:
            printing.print_json(answer.plain())
        else:
            print(answer)
    elif args.json:
        facts, snapshot = study[name].facts, study.state
        variant_document = build_variant_document(
            facts, study.model, get_variant_titles(snapshot), baseline=score.find_reference(snapshot, facts)
        )
        printing.print_json(variant_document)
    return bool(args.ask or args.json)


def _compare(args: argparse.Namespace) -> int:
    from rtlab.analyses.titles import get_variant_titles
    from rtlab.web.page.document import build_difference_document

    if args.second == "compilers" and not Path(args.second).exists():
        releases = opening.plan_first_engine(args).fusion.releases(args.first)
        return _print_json_or_text(args, releases, lambda one: print(one.to_text()))
    study, names = opening.open_both_engines(args)
    engine_difference = study.difference(*names)
    # What was compiled for a GPU is compared there first: the CPU in its place runs other kernels.
    target = study.difference(*names, gpu="target") if all(study[n].estimate for n in names) else None
    if args.json:
        titles_by_name = get_variant_titles(study.state)
        comparison = build_difference_document(engine_difference, study.model, titles_by_name)
        comparison["estimate"] = (
            None if target is None else build_difference_document(target, study.model, titles_by_name)
        )
        printing.print_json(comparison)
        return 0
    if target is not None:
        printing.print_difference(target, study, "estimated for the GPU of each")
        print()
    printing.print_difference(engine_difference, study)
    return 0


def _print_json_or_text(args: argparse.Namespace, answer: T, words: Callable[[T], None]) -> int:
    """Print an answer as JSON, or in words."""
    if args.json:
        printing.print_json(answer)
    else:
        words(answer)
    return 0


def _why(args: argparse.Namespace) -> int:
    study = opening.build_study(args, [args.precision])
    limits = {"builds": args.builds, "seconds": args.seconds}
    answer = study.fusion.why(args.node, args.other, variant=args.precision, again=args.again, **limits)
    if args.output is not None:
        study.fusion.record(answer, args.output, variant=args.precision)
    return _print_json_or_text(args, answer, printing.print_fusion)


def _advise(args: argparse.Namespace) -> int:
    study = opening.build_study(args, [args.precision])
    advice = study.fusion.advise(args.precision, seconds=args.seconds)
    return _print_json_or_text(args, advice, printing.print_advice)


def _sensitivity(args: argparse.Namespace) -> int:
    study = opening.plan_study(args, [args.precision])
    sensitivity = study.accuracy.sensitivity(
        args.precision,
        asks=args.asks,
        labels=None if args.labels is None else opening.labels(args.labels),
        verify=args.verify,
        budget_s=args.seconds,
    )
    sensitivity = study.accuracy.diagnose(args.precision).add_causes(sensitivity)
    return _print_json_or_text(args, sensitivity, lambda one: print(one.to_text()))


def _repair(args: argparse.Namespace) -> int:
    from rtlab.documents.serialization import to_builtins

    study = opening.build_study(args, [args.precision])
    repair = study.accuracy.repair(args.precision, args.max_drop, budget_s=args.seconds)
    name = repair.repaired if repair.changes else args.precision
    exported_files = None if args.output is None else study.export(name, args.output)
    if args.json:
        path = None if exported_files is None else str(exported_files.model)
        printing.print_json({**to_builtins(repair), "model": path})
        return 0
    print(repair.text())
    if exported_files is not None:
        print(f"wrote {exported_files.model}")
    return 0


def _bisect(args: argparse.Namespace) -> int:
    study = opening.open_study(args)
    for release in args.compiler:
        study.add(release, **opening.choice(args, args.precision), compiler=release)
    bisection = study.fusion.bisect(*args.compiler, builds=args.builds, seconds=args.seconds)
    return _print_json_or_text(args, bisection, lambda one: print(one.to_text()))


def _doctor(args: argparse.Namespace) -> int:
    from rtlab import backends
    from rtlab.backends.reference import get_evaluator
    from rtlab.core.budget import WorkContext
    from rtlab.core.progress import Terminal
    from rtlab.experiments.doctor import SelfTest
    from rtlab.experiments.experiment import run_experiment
    from rtlab.experiments.workshop import WorkshopTest

    table = backends.registry() if args.backend is None else {args.backend: backends.get(args.backend)}
    with contextlib.closing(Terminal()) as progress:
        if args.workshop:
            test = WorkshopTest(table, Path(TOUR).absolute())
            report = run_experiment(test, WorkContext(None, progress))
        else:
            report = run_experiment(SelfTest(table), WorkContext(get_evaluator, progress))
    if args.json:
        printing.print_json(report.as_dict())
    else:
        print(report.text)
    return _FAILED if report.failed else 0


def _print_completion(parser: argparse.ArgumentParser, shell: str) -> int:
    import shtab

    _complete_with_files(parser)
    print(shtab.complete(parser, shell))
    return 0


def _complete_with_files(parser: argparse.ArgumentParser) -> None:
    """Values without a list of choices are completed with names of files."""
    import shtab

    for action in parser._actions:  # noqa: SLF001 - argparse lists them nowhere else; shtab reads them there too
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for command in action.choices.values():
                _complete_with_files(command)
        elif action.choices is None and action.nargs != 0:
            action.complete = shtab.FILE  # type: ignore[attr-defined] # what shtab looks for


def _prepare(args: argparse.Namespace) -> int:
    from rtlab.analyses.titles import get_variant_titles
    from rtlab.quantize.export import VERSION

    study, name = opening.open_study(args), args.precision
    choice = opening.choice(args, name)
    prepared_variant = study.calibration.prepare(name, **{**choice, "target": args.target or "cpu"})
    exported_files = study.export(name, args.output, cache=args.cache, version=args.cache_version or VERSION)
    notes = prepared_variant.notes
    if study.state.variants[name].calibrator is not None:
        is_real = args.data is not None or study.task is not None
        hint = "" if is_real else ": give --data for the scales of real inputs"
        notes = (f"calibrated on {len(study.data)} samples of {study.data.source}{hint}", *notes)
    if args.json:
        files = {kind: getattr(exported_files, kind) for kind in ("model", "weights", "scales", "cache")}
        printing.print_json({"files": files, "commands": exported_files.commands, "notes": notes})
        return 0
    title = get_variant_titles(study.state)[name]
    print(
        f"{study.model.name} · {title}: {study.model.node_count} nodes → {prepared_variant.model.node_count}"
    )
    for path in exported_files.files:
        print(f"wrote {path}")
    for note in notes:
        print(f"note: {note}")
    print("\nbuild it elsewhere with one of")
    for line in exported_files.commands:
        print(f"  {line}")
    return 0


def _report(args: argparse.Namespace) -> int:
    """Build the variants and write them; prints the paths, a line each."""
    from rtlab.web.report.html import write_html, write_json, write_markdown

    study = opening.build_study(args, args.precision or ["fp32"])
    print(write_html(study.state, args.output))
    if args.markdown is not None:
        print(write_markdown(study.state, args.markdown))
    if args.whole is not None:
        print(write_json(study.state, args.whole))
    return 0
