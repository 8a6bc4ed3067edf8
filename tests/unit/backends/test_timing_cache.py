"""An editable timing cache, against a stand-in that is generated from the lists of the real bindings."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import fake_trt
from fake_gpu import VERSIONS, Here
from rtlab.backends.live.timing_cache import FLAG, Entry, force, matching, read
from rtlab.backends.tensorrt_rtx import TensorRTRTX
from rtlab.core.engine import Engine
from rtlab.core.options import BuildOptions
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest
from rtlab.core.variant import Variant
from rtlab.errors import ReadError, VariantError
from rtlab.testing import tiny_model

pytestmark = pytest.mark.skipif(
    not fake_trt.LISTS.is_dir(), reason="no ../shared/reference beside the checkout"
)
FIRST = 0xDD39499496C9CC00


def build(release: str, file: Path, *flags: str) -> Engine:
    options = BuildOptions.of(timing_cache=file, flags=flags)
    variant = Variant.of("fp32", target="sm86", options=options)
    return Here(release).build(BuildRequest(tiny_model(), variant), Silent())


def taken(engine: Engine) -> list[int]:
    """The tactics that the stand-in took, as it logged them."""
    told = json.loads(re.findall(r"^CONFIGURED (.*)$", engine.log, re.MULTILINE)[-1])
    return list(told["tactics taken"].values())


@pytest.mark.parametrize("release", VERSIONS)
def test_a_forced_tactic_is_the_one_that_is_built(tmp_path: Path, release: str) -> None:
    """Build, read, edit, build again: the other layers keep theirs."""
    file = tmp_path / "timing"
    before = taken(build(release, file, FLAG))
    entries = read(file, Here(release))
    assert [(i, FIRST + i, 0.25) for i in range(len(before))] == [
        (e.position, e.tactic, e.milliseconds) for e in entries
    ]
    assert before == [e.tactic for e in entries]
    assert "0xdd39499496c9cc00" == entries[0].id
    changed = force(file, {1: ("0x0090bbea764abf95", 0.125)}, Here(release))
    assert Entry(1, 0x0090BBEA764ABF95, 0.125) == changed[1]
    assert changed == read(file, Here(release))
    assert [before[0], 0x0090BBEA764ABF95, *before[2:]] == taken(build(release, file, FLAG))
    assert [file] == list(tmp_path.iterdir())


def test_the_log_tells_which_entry_is_a_layers() -> None:
    """The same kernel may serve layers of several sizes, whose times differ."""
    entries = (Entry(0, 0xA, 0.5), Entry(1, 0xA, 0.25), Entry(2, 0xB, 0.25))
    assert (entries[1],) == matching(entries, "0x000000000000000a", 0.25001)
    assert () == matching(entries, "0x000000000000000a", 0.3)
    assert () == matching(entries, "Myelin", 0.25)


def test_what_cannot_be_edited_says_why(tmp_path: Path) -> None:
    file, backend = tmp_path / "timing", Here("trt10")
    with pytest.raises(ReadError, match=r"No such file .*Name a file that a build has written"):
        read(file, backend)
    build("trt10", file)
    with pytest.raises(
        ReadError, match=r'no entries that can be edited\. Build with flags=\["EDITABLE_TIMING_CACHE"\]'
    ):
        read(file, backend)
    file.unlink()
    build("trt10", file, FLAG)
    kept = file.read_bytes()
    with pytest.raises(VariantError, match=r"there is no entry 99\. Choose a position from 0 to \d+"):
        force(file, {99: ("0x1", 0.1)}, backend)
    with pytest.raises(VariantError, match="TensorRT refuses tactic 0x0000000000000000"):
        force(file, {0: ("0x0", 0.1)}, backend)
    for wrong in ("Myelin", "-1", "0x1ffffffffffffffff"):
        with pytest.raises(VariantError, match="it is no id of 64 bits"):
            force(file, {0: (wrong, 0.1)}, backend)
    assert kept == file.read_bytes()
    for content in (b"none", kept.replace(b"here", b"there")):
        file.write_bytes(content)
        with pytest.raises(ReadError, match="it is damaged, or of another version or GPU"):
            read(file, backend)


def test_a_compiler_that_times_nothing_while_it_builds_says_so(tmp_path: Path) -> None:
    """TensorRT-RTX has the names and ignores the cache."""
    with pytest.raises(
        VariantError, match=r'TensorRT-RTX times kernels when it runs, .*Choose backend="tensorrt"'
    ):
        read(tmp_path / "timing", TensorRTRTX())
