"""An editable timing cache, against a stand-in that has the names of the real bindings."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from fake_gpu import VERSIONS, Here, needs_api
from rtlab.backends.readers.log.tactics import Operator, parse_operators
from rtlab.backends.workers.compiler import FLAG
from rtlab.core.buildlog import Entry, TacticTime
from rtlab.core.engine import Engine
from rtlab.core.options import BuildOptions
from rtlab.core.progress import Silent
from rtlab.core.protocols import BuildRequest
from rtlab.core.variant import Variant
from rtlab.errors import ReadError, VariantError
from rtlab.testing import tiny_model


def build(release: str, file: Path, *flags: str) -> Engine:
    options = BuildOptions.of(timing_cache=file, flags=flags)
    variant = Variant.of("fp32", target="sm86", options=options)
    return Here(release).build(BuildRequest(tiny_model(), variant), Silent())


def taken(engine: Engine) -> list[int]:
    """The tactics that the stand-in took, as it logged them."""
    told = json.loads(re.findall(r"^CONFIGURED (.*)$", engine.log, re.MULTILINE)[-1])
    return list(told["tactics taken"].values())


@needs_api
@pytest.mark.parametrize("release", VERSIONS)
def test_a_forced_tactic_is_the_one_that_is_built(tmp_path: Path, release: str) -> None:
    """Build, read, edit a copy, build with it: the other operators keep theirs, and the first cache its bytes."""
    file, copy = tmp_path / "timing", tmp_path / "forced"
    engine = build(release, file, FLAG)
    told = parse_operators(engine.log)
    keys = [o.key for o in told]
    assert len(keys) == len(set(keys)) == len(taken(engine)) > 2
    entries = Here(release).remembered(file, keys)
    assert keys == list(entries)
    # The log and the cache tell of the same tactics and times.
    assert [(o.timed[0].tactic, o.timed[0].milliseconds) for o in told] == [
        (entries[k].id, entries[k].milliseconds) for k in keys
    ]
    assert taken(engine) == [entries[k].tactic for k in keys]
    before, kept = file.stat().st_mtime_ns, file.read_bytes()
    other = Entry(keys[1], int(told[1].timed[2].tactic, 0), told[1].timed[2].milliseconds)
    assert {keys[1]: other} == Here(release).forced(file, copy, [other])
    assert {**entries, keys[1]: other} == Here(release).remembered(copy, keys)
    again = build(release, copy, FLAG)
    assert [taken(engine)[0], other.tactic, *taken(engine)[2:]] == taken(again)
    # What the cache knows is not timed again.
    assert () == parse_operators(again.log)
    assert (before, kept) == (file.stat().st_mtime_ns, file.read_bytes())
    assert {file, copy} == set(tmp_path.iterdir())
    # Keys of no operator of this cache are left out.
    assert {} == Here(release).remembered(file, ["0x" + "0" * 32])


@needs_api
def test_what_cannot_be_edited_says_why(tmp_path: Path) -> None:
    key, unknown = "0x" + "1" * 32, "0x" + "f" * 32
    file, copy, backend = tmp_path / "timing", tmp_path / "copy", Here("trt10")
    with pytest.raises(ReadError, match="No such file"):
        backend.remembered(file, [])
    content = f"TC:{VERSIONS['trt10']}:here:1:{key}=7=0.5".encode()
    for damaged, said in (
        (content.rpartition(b":")[0], r"no entries .* flags=\[\"EDITABLE_TIMING_CACHE\"\]"),
        (b"none", "it is damaged, or of another version or GPU"),
        (content.replace(b"here", b"there"), "it is damaged, or of another version or GPU"),
    ):
        file.write_bytes(damaged)
        with pytest.raises(ReadError, match=said):
            backend.remembered(file, [])
    file.write_bytes(content)
    (tmp_path / "link").hardlink_to(file)
    for target, entry, said in (
        (copy, Entry(unknown, 1, 0.1), "no entry of key 0xf{32}"),
        (copy, Entry(key, 1, -0.1), "TensorRT refuses tactic 0x1"),
        *((copy, Entry(key, wrong, 0.1), "no hash of 64 bits") for wrong in (-1, 0, 2**64 - 1, 2**64)),
        *((tmp_path / same, Entry(key, 1, 0.1), "the cache that is read") for same in ("timing", "./link")),
    ):
        with pytest.raises(VariantError, match=said):
            backend.forced(file, target, [entry])
    assert (content, False) == (file.read_bytes(), copy.exists())
    assert {key: Entry(key, 7, 0.5)} == backend.remembered(file, [key, unknown])


KEY = "0x1814870c44ff0f8574df6e3dda04cbd7"
HEAD = "tactic_id, cost(in ms), cost/fastest_cost, prediction_correlation, kernel_name, tactic_hash, tunable"


def test_the_log_of_an_editable_build_tells_keys_and_tactics() -> None:
    """With tags and without; the fastest first; a time that is none is left out; what is timed again replaces."""
    loud = KEY.upper().replace("X", "x")
    rows = [
        f"[V] [TRT]  (foreignNode) Autotuning op matMul1(key: {loud}): [ONNX Layer: a][ONNX Layer: b]",
        f" (foreignNode) {HEAD}",
        "   5, 0.0118784, 1.05455, 0.51157, sm80_slow, 0x393e4ef8ad243,",
        " (foreignNode)   3, 0.0112640, 1.00000, 0.50673, sm80, fast, 0x665ded9abbf88,",
        "   6, inf, 1.05455, 0.51157, sm80_never, 0x1,",
        " (foreignNode) The selected tactic is (tactic hash, cost(in ms)):0x665ded9abbf88,  0.011264",
        "Autotuning op plain:",
        "   1, 2.0, 1.0, 0.5, kernel, 0x2,",
        "Autotuning op empty(key: 0x" + "1" * 32 + "):",
        "Autotuning op plain:",
        "   1, 3.0, 1.0, 0.5, kernel, 0x2,",
    ]
    fast, slow = (
        TacticTime("0x665ded9abbf88", "sm80, fast", 0.011264),
        TacticTime("0x393e4ef8ad243", "sm80_slow", 0.0118784),
    )
    plain = [Operator("plain", "", (), (TacticTime("0x2", "kernel", t),)) for t in (2.0, 3.0)]
    assert (Operator("matMul1", KEY, ("a", "b"), (fast, slow)), *plain) == parse_operators("\n".join(rows))
    again = [f"Autotuning op matMul1(key: {KEY}):", "   1, 2.0, 1.0, 0.5, kernel, 0x2,"]
    assert [("matMul1", KEY, 1), ("plain", "", 1), ("plain", "", 1)] == [
        (o.name, o.key, len(o.timed)) for o in parse_operators("\n".join(rows + again))
    ]
    assert () == parse_operators("")
