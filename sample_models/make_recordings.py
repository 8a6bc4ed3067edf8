"""Records builds of the samples, for machines for which TensorRT-RTX has no wheel: see rtlab/backends/recorded.py.

Run it where TensorRT-RTX is installed, with the other releases that notebook 16 compares added (rtlab compilers add):

    python sample_models/make_recordings.py             # all: half an hour on two cores
    python sample_models/make_recordings.py NAME ...    # these samples and notebooks (16_what...) alone; others stay

It builds every sample in each precision and for each target, and runs the code of the notebooks, whose searches build
many small parts. Searches get more time than in the notebooks, since looking up a build takes none.
"""

from __future__ import annotations

import dataclasses
import os
import re
import sys
import tempfile
from pathlib import Path

import msgspec
import nbformat
from typing_extensions import Self

import rtlab
from rtlab.backends import recorded
from rtlab.backends.readers import build
from rtlab.backends.tensorrt import TensorRTRTX
from rtlab.core.protocols import BuildRequest, Progress
from rtlab.core.variant import Precision
from rtlab.errors import BuildError, RtlabError

HERE = Path(__file__).parent
NOTEBOOKS = sorted((HERE.parent / "notebooks").glob("*.ipynb"))
#: The cards that the compiler builds for.
TARGETS = ("sm80", "sm86", "sm89", "sm120")
#: Budgets of searches that build, which get so many times as long as in the notebooks.
BUDGET = re.compile(r"\bseconds=(\d+)")
LONGER = 6


class Recorder:
    """Stands in for ``TensorRTRTX.build``, and keeps what it gives."""

    def __init__(self) -> None:
        self.files: dict[str, dict[str, bytes]] = {}
        self.models: dict[str, list[str]] = {}
        self.file = ""
        self._build = TensorRTRTX.build

    def __enter__(self) -> Self:
        recorder, original = self, self._build

        def build_and_keep(backend: TensorRTRTX, request: BuildRequest, progress: Progress) -> rtlab.Engine:
            release = backend.availability().version
            key = recorded.compute_key(request, release)
            try:
                # The process that builds waits for the next, which saves a second each.
                engine = original(backend, dataclasses.replace(request, several=True), progress)
            except BuildError as error:
                recorder.keep(
                    key,
                    msgspec.json.encode(
                        recorded.RecordedRefusal(
                            build.remove_folders(str(error)), build.remove_folders(error.details)[-2000:]
                        )
                    ),
                )
                raise
            recorder.keep(key, build.encode(engine, words=request.variant.id))
            return engine

        TensorRTRTX.build = build_and_keep  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        TensorRTRTX.build = self._build  # type: ignore[method-assign]

    def keep(self, key: str, content: bytes) -> None:
        """Keep a build once: what was recorded for one sample may be asked for by a notebook."""
        if not any(key in builds for builds in self.files.values()):
            self.files.setdefault(self.file, {})[key] = content

    def of(self, model: rtlab.Model, release: str) -> None:
        """Remember that builds of a model are here."""
        listed = self.models.setdefault(recorded.shorten_structure(model.structure), [])
        if release not in listed:
            listed.append(release)


def sample(recorder: Recorder, name: str) -> None:
    """Build a sample in each precision and for each target."""
    given = rtlab.samples.load(name, samples=16)
    recorder.file = name
    recorder.of(given.model, release())
    study = rtlab.Study(given.model, data=given.calibration)
    for precision in Precision:
        for target in TARGETS:
            if rtlab.Target(target).refusal(precision):
                continue
            title = f"{precision} {target}"
            study.add(title, precision=precision, target=target, backend="tensorrt-rtx")
            try:
                study.run([title], compare=False, budget_s=0)
            except RtlabError as error:
                print(f"  {name} {title}: {error}", flush=True)


def notebook(recorder: Recorder, path: Path) -> None:
    """Run the code of a notebook, as its reader does from top to bottom."""
    recorder.file = path.stem
    names: dict[str, object] = {"__name__": "__main__"}
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for cell in nbformat.read(path, as_version=4).cells:
                if cell.cell_type == "code":
                    code = BUDGET.sub(lambda m: f"seconds={LONGER * int(m[1])}", cell.source)
                    exec(compile(code, path.name, "exec"), names)  # noqa: S102 - our own notebooks
        finally:
            os.chdir(before)
    for held in names.values():
        if isinstance(held, rtlab.Study):
            for variant in held.state.variants.values():
                if (variant.backend or "").startswith("tensorrt-rtx"):
                    recorder.of(held.model, release(variant.backend or ""))


def release(backend: str = "tensorrt-rtx") -> str:
    """The version of a release."""
    return rtlab.available()[backend].version


def kept() -> tuple[dict[str, dict[str, bytes]], dict[str, list[str]]]:
    """What was recorded before."""
    files = sorted({*recorded.index().builds.values()})
    found = {file.removesuffix(".xz"): dict(recorded.read_builds(file)) for file in files}
    return found, {k: list(v) for k, v in recorded.index().models.items()}


def main(asked: list[str]) -> None:
    """Record, and write after each sample and notebook."""
    folder = recorded.folder()
    # What was asked before is answered from records, and nothing would be built.
    forgetful = tempfile.TemporaryDirectory()
    os.environ["RTLAB_RECORDS"] = forgetful.name
    steps = {n: lambda r, n=n: sample(r, n) for n in rtlab.samples.names()}
    steps |= {p.stem: lambda r, p=p: notebook(r, p) for p in NOTEBOOKS}
    with Recorder() as recorder:
        if asked:
            recorder.files, recorder.models = kept()
            for name in asked:
                recorder.files.pop(name, None)
        for name in asked or steps:
            steps[name](recorder)
            recorded.write(recorder.files, recorder.models, [name])
            builds = recorder.files.get(name, {})
            size = (folder / f"{name}.xz").stat().st_size if builds else 0
            print(f"{name}: {len(builds)} builds, {size / 1000:.0f} KB", flush=True)
        for left in {p.stem for p in folder.glob("*.xz")} - {*recorder.files}:
            (folder / f"{left}.xz").unlink()
    forgetful.cleanup()
    print(f"{sum(map(len, recorder.files.values()))} builds")


if __name__ == "__main__":
    main(sys.argv[1:])
