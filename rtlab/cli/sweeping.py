"""``rtlab sweep`` and ``rtlab store``: many variants of many models into a folder, and what is in it."""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import importlib.util
import json
import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rtlab.cli import opening, printing
from rtlab.core.inputs import read_input
from rtlab.errors import ReadError, RtlabError, VariantError

if TYPE_CHECKING:
    from rtlab.api import Study
    from rtlab.stores import Store
    from rtlab.study.sweep_rows import SweepRow

#: Keys of a grid's file, and of one of its models.
_KEYS, _MODEL_KEYS = ("models", "choices"), ("path", "name", "data", "labels", "metric", "shapes")
#: Columns that a terminal has room for.
_COLUMNS = ("model", "variant", "status", "layers", "time_ms", "output_sqnr", "score", "score_delta", "key")


def sweep(args: argparse.Namespace) -> int:
    """Run the variants of a grid that are not in a store yet; returns 1 where one failed."""
    from rtlab.stores import Store, grid

    models, choices = _read_grid(Path(args.grid))
    planned = grid(models, **choices)
    store = Store(args.store)
    with _choose_executor(args) as executor:
        made = store.run(
            planned, executor=executor, retries=args.retries, budget_s=args.measure, again=args.resume
        )
    if args.json:
        skipped = [{"model": s.model, "variant": s.name, "reason": s.reason} for s in planned.skipped]
        printing.print_json({"variants": [*made.rows()], "skipped": skipped})
    else:
        _print_rows(made.rows())
        for one in planned.skipped:
            print(f"skipped {one.model} {one.name}: {one.reason}")
    return int(any(row.error for row in made.rows()))


def manage(args: argparse.Namespace) -> int:
    """List, remove from, clean up or export a store."""
    from rtlab.stores import Store

    if not Path(args.store).is_dir():
        raise ReadError(f'Cannot open the store "{args.store}": there is no such folder. Check the path.')
    store = Store(args.store)
    match args.action:
        case "ls" if args.json:
            printing.print_json({"variants": [*store.rows()]})
        case "ls":
            _print_rows(store.rows())
        case "rm":
            print(f"removed {store.remove(*args.keys)}")
        case "gc":
            counts = store.collect_garbage()
            print(", ".join(f"{count} {name}" for name, count in counts.items()), "removed")
        case _:
            print(f"wrote {_export(store, Path(args.output), args.of)}")
    return 0


def _export(store: Store, path: Path, model: str | None) -> Path:
    """Write the table, or the study of a model, by the suffix of the file."""
    from rtlab.core.files import write

    table = store.frame()
    match path.suffix.lower():
        case ".csv":
            return write(path, table.to_csv(index=False).encode(), what="the table")
        case ".json":
            return write(path, table.to_json(orient="records").encode(), what="the table")
        case ".parquet":
            from rtlab.core.optional import require

            require("pyarrow", why=f'write "{path}"')
            return write(path, table.to_parquet(index=False), what="the table")
        case ".rtlab":
            models = sorted({*table["model"]} - {""})
            if model is None and len(models) != 1:
                raise VariantError(
                    f'Cannot write "{path}": a study is of one model. Choose one with --of: {", ".join(models)}.'
                )
            study: Study = store.study(model or models[0])
            return study.save(path)
    raise RtlabError(
        f'Cannot write "{path}": its suffix names no kind of file. Choose .csv, .json or .parquet for the table, or '
        ".rtlab for the study of a model."
    )


def _print_rows(rows: Sequence[SweepRow]) -> None:
    """The most important columns, and below them the words of failures."""
    from rtlab.documents.results import align_columns

    def format_cell(row: SweepRow, name: str) -> str:
        value = getattr(row, name)
        if name == "key":
            return str(value)[:8]
        return "—" if value in (None, "") else f"{value:.4g}" if isinstance(value, float) else str(value)

    cells = [[format_cell(row, name) for name in _COLUMNS] for row in rows]
    print(align_columns(_COLUMNS, cells) if rows else "no results")
    for row in rows:
        if row.error:
            print(f"{row.model} {row.variant}: {row.error}")


def _read_grid(path: Path) -> tuple[list[Any], dict[str, Any]]:
    """Models and choices of a file; paths in it are seen from its folder."""
    document = _parse_grid(path)
    models, choices = document.get("models"), document.get("choices", {})
    if not isinstance(models, list) or not models or not isinstance(choices, dict) or {*document} - {*_KEYS}:
        raise _make_error(path, f"it has {', '.join(document) or 'nothing'}")
    return [_open_model(entry, path) for entry in models], choices


def _parse_grid(path: Path) -> Mapping[str, Any]:
    try:
        content = read_input(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ReadError(f'Cannot read the grid "{path}": {error}. Check the path.') from error
    try:
        document = json.loads(content) if path.suffix.lower() == ".json" else _parse_toml(content, path)
    except ValueError as error:
        raise _make_error(path, str(error)) from error
    if not isinstance(document, dict):
        raise _make_error(path, "it is a list")
    return document


def _parse_toml(content: str, path: Path) -> Any:
    if importlib.util.find_spec("tomllib") is None:
        raise ReadError(
            f'Cannot read the grid "{path}": Python 3.10 reads no TOML. Write it as .json with the same keys.'
        )
    import tomllib

    return tomllib.loads(content)


def _make_error(path: Path, problem: str) -> ReadError:
    return ReadError(
        f'Cannot read the grid "{path}": {problem}. Write models = ["resnet50", "model.onnx"] and [choices] with lists '
        'such as precision = ["fp16", "int8"]; a model may be a table with path, data, labels, metric, shapes and name.'
    )


def _open_model(entry: Any, path: Path) -> Any:
    """A model of a grid's file: a sample by name, or the study of a file with its samples."""
    from rtlab import samples
    from rtlab.api import Study
    from rtlab.core.data import CalibrationData
    from rtlab.core.model import load
    from rtlab.core.task import Task

    table = {"path": entry} if isinstance(entry, str) else entry
    if not isinstance(table, dict) or "path" not in table or {*table} - {*_MODEL_KEYS}:
        raise _make_error(path, f"it has the model {entry!r}")
    file = path.parent / table["path"]
    if table["path"] in samples.names() and not file.exists():
        return samples.load(table["path"])
    model = load(file, shapes=table.get("shapes"), name=table.get("name"))
    if "data" not in table:
        return Study(model)
    data = CalibrationData.of(path.parent / table["data"], model=model)
    task = None
    if "labels" in table:
        task = Task(data, opening.labels(str(path.parent / table["labels"])), metric=table.get("metric"))
    elif "metric" in table:
        task = Task(data, metric=table["metric"])
    return Study(model, data=data, task=task)


@contextlib.contextmanager
def _choose_executor(
    args: argparse.Namespace,
) -> Iterator[Callable[[Mapping[str, float]], Executor] | None]:
    """What runs variants: a cluster, processes of this machine, or this process alone."""
    if args.scheduler is not None:
        from rtlab.core.optional import require

        distributed = require("distributed", why=f"use the scheduler {args.scheduler}")
        try:
            client = distributed.Client(args.scheduler, timeout=10)
        except (OSError, ValueError) as error:
            raise RtlabError(
                f'Cannot reach the scheduler "{args.scheduler}": {error}. Start one with dask scheduler, and workers '
                "with dask worker."
            ) from error
        with client:
            yield lambda needs: client.get_executor(resources=dict(needs) or None)
    elif args.workers > 1:
        spawn = multiprocessing.get_context("spawn")
        with contextlib.ExitStack() as stack:
            yield lambda _: stack.enter_context(
                concurrent.futures.ProcessPoolExecutor(args.workers, mp_context=spawn)
            )
    else:
        yield None
