"""Runs the sweep of notebook 17, and packs of its store what the notebook reads into sweep.tar.xz.

Run it where TensorRT-RTX is installed, with release 1.6 added (rtlab compilers add 1.6):

    python sample_models/make_sweep.py FOLDER       # the store; it goes on where it was: half an hour on two cores

The archive has the rows of all variants, and the results of one model whole, without its samples.
"""

from __future__ import annotations

import io
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import rtlab
from rtlab.study.saving import open_study, save_study

#: Trained samples that are calibrated and scored on their own data.
TRAINED = [
    "digits_inception", "digits_outlier", "digits_mobilenet", "digits_dark", "digits_light", "digits_vit",
    "digits_lstm", "digits_gru", "digits_sparse24", "fp16_overflow", "sentences",
]  # fmt: skip
CALIBRATORS = ["auto", "minmax", "entropy", "percentile", "mse"]
TARGETS = ["sm86", "sm89", "sm120", "cpu"]
#: The model whose results are whole in the archive.
WHOLE = "digits_outlier"
ARCHIVE = Path(__file__).parent / "sweep.tar.xz"


def make_grids() -> dict[str, rtlab.Grid]:
    """The parts of the sweep by name; all go into one store, and what two of them have is one result."""
    return {
        "precisions and calibrators": rtlab.grid(
            TRAINED, precision=["fp32", "fp16", "bf16", "int8"], calibrator=CALIBRATORS, target=TARGETS
        ),
        "few bits": rtlab.grid(TRAINED, precision=["fp8", "int4", "fp4"], target=TARGETS),
        "the release before": rtlab.grid(
            TRAINED, precision=["fp16", "int8"], target=["sm86", "sm89"], compiler=["1.6", None]
        ),
        "batches of 64": rtlab.grid(
            TRAINED, precision=["fp32", "fp16", "int8"], target=["sm86", "sm89"], sizes=[{"N": 64}, {}]
        ),
        "networks with Q/DQ of their own": rtlab.grid(
            ["digits_qat", "digits_qat_misplaced"], precision=["fp32", "fp16", "int8"], target=TARGETS
        ),
        "traits": rtlab.grid(
            ["dynamic_shapes", "control_flow", "hostile_names"],
            precision=["fp32", "fp16", "int8"],
            target=TARGETS,
        ),
        "a decoder": rtlab.grid(
            "characters", precision=["fp32", "fp16", "int8", "fp8", "int4"], target=["sm89", "cpu"]
        ),
        "networks of real size": rtlab.grid(
            ["mobilenet_v2", "resnet50"], precision=["fp32", "fp16", "int8"], target=["sm86", "sm89", "sm120"]
        ),
    }


def list_files(store: rtlab.Store) -> Iterator[tuple[str, bytes]]:
    """The files that go into the archive, by their names in a store."""
    rows = store.rows()
    paths = [store.path / "store.json"]
    # Files of one kind side by side compress best.
    for row in rows:
        is_failed = row.status == "failed"
        paths.append(store.path / (f"failed/{row.key}.json" if is_failed else f"entries/{row.key}/row.json"))
    homes = [store.path / "entries" / row.key for row in rows if row.model == WHOLE and row.status == "built"]
    files = [file for home in homes for file in home.iterdir() if file.name != "row.json"]
    paths += sorted(files, key=lambda file: (file.name, file))
    for path in paths:
        yield path.relative_to(store.path).as_posix(), path.read_bytes()
    for name in sorted({f"{row.study}.rtlab" for row in rows if row.model == WHOLE}):
        state, stride = open_study(store.path / "studies" / name)
        with tempfile.TemporaryDirectory() as folder:
            # Samples are many times the rest, and rtlab.samples has them.
            saved = save_study(state, Path(folder) / name, stride=stride, weights=True, samples=False)
            yield f"studies/{name}", saved.read_bytes()


def pack(store: rtlab.Store, archive: Path) -> None:
    """Write the archive, without dates and owners of files."""
    with tarfile.open(archive, "w:xz", preset=9, format=tarfile.USTAR_FORMAT) as packed:
        for name, content in list_files(store):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            packed.addfile(entry, io.BytesIO(content))


def main(folder: str) -> None:
    """Run what is not in the store yet, and pack."""
    store = rtlab.Store(folder)
    for name, grid in make_grids().items():
        sweep = store.run(grid)
        print(f"{name}: {sweep}, {len(grid.skipped)} skipped", flush=True)
    pack(store, ARCHIVE)
    print(f"{store}, {ARCHIVE.stat().st_size / 1000:.0f} KB")


if __name__ == "__main__":
    main(sys.argv[1])
