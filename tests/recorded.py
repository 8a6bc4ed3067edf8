"""Engines from elsewhere as files: those that real GPUs wrote lie beside the checkout, a few written by hand in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rtlab.backends.trtexec import Trtexec
from rtlab.core.engine import Engine
from rtlab.questions.timing.times import Timing, timing

FOLDER = Path(__file__).parents[2] / "shared" / "recorded" / "engines"
#: Those of real GPUs, which lie beside the checkout.
REAL = sorted(FOLDER.iterdir()) if FOLDER.is_dir() else []
#: And those of the corpus, which are in it: written by hand.
ENGINES = [*sorted((Path(__file__).parent / "corpus" / "engines").iterdir()), *REAL]
#: A test of one engine of a real GPU by its name.
present = pytest.mark.skipif(not REAL, reason="no ../shared/recorded beside the checkout")
#: Engines whose layer file holds names and nothing else: built without detailed verbosity.
NAMES_ONLY = frozenset({"detr-names-only", "written-names-only"})


def _of(folders: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("folder", folders, ids=lambda f: f.name)


#: A test of every engine, as ``folder``.
each = _of(ENGINES)
#: A test of every engine whose layers tell kinds, types and tensors.
detailed = _of([f for f in ENGINES if f.name not in NAMES_ONLY])


def files(folder: Path) -> dict[str, Path]:
    """What a folder of recordings holds, by kind."""
    names = {
        "layers": ("engine.graph.json", "resnet18_trt_engine_info.json", "detr-layer-info.json"),
        "profile": ("engine.profile.json", "detr-profile.json"),
        "times": ("engine.timing.json",),
        "metadata": ("engine.profile.metadata.json", "engine.metadata.json"),
    }
    found = {k: next((folder / n for n in v if (folder / n).exists()), None) for k, v in names.items()}
    return {k: p for k, p in found.items() if p is not None}


def read(folder: Path | str) -> tuple[Engine, Timing | None]:
    """An engine and its times, where the folder has a profile."""
    found = Trtexec().read(files(FOLDER / folder))
    return found.engine, timing(found.profile, found.engine) if found.profile else None
