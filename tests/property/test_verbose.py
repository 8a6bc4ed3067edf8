"""Laws of reading build logs: damage gives a log or a ReadError, never anything else."""

from __future__ import annotations

import functools
import math
import random
import tempfile
from pathlib import Path
from unittest import mock

from hypothesis import example, given
from hypothesis import strategies as st

from build_logs import INCEPTION, REGIONS, SPARSE
from rtlab.analyses.build import build_story
from rtlab.analyses.build.replay import replay_decisions
from rtlab.analyses.build.tactics import find_contests
from rtlab.backends.compiler_info import TENSORRT
from rtlab.backends.readers.log import verbose
from rtlab.backends.readers.log.verbose import ParsedLog, parse
from rtlab.core.buildlog import BuildLog
from rtlab.core.engine import Engine
from rtlab.core.model import Model
from rtlab.documents.serialization import encode
from rtlab.errors import ReadError
from rtlab.testing import tiny_model

RTX = Path(__file__).parents[1] / "data" / "rtx-1.7.1-control_flow.log"
#: Sentences that the logs of the corpus lack, with names as people write them.
OTHERS = """\
&&&& RUNNING TensorRT.trtexec [TensorRT v8502] # trtexec --verbose
[I] Compute Capability: 8.6
[V] [TRT] Registering layer: n0 with x for ONNX node: n0
[V] [TRT] Original: 12 layers
[V] [TRT] Running: QuantizeDoubleInputNodes on n0
[V] [TRT] QuantizeDoubleInputNodes: fusing (a and b) into n0 with x
[V] [TRT] PointWiseFusion: Fusing a with b with PWN(c, PWN(d))
[V] [TRT] Swap the layer type of n0 from ELEMENTWISE to POINTWISE
[V] [TRT] Eliminating q_1 which duplicates (Q) q
[V] [TRT] Eliminating slice s by retargeting t from t to u
[V] [TRT] Generating copy for a || b to c because of stomping hazard.
[V] [TRT] Adding reformat layer: Reformatted Input Tensor 0 to a (b (c)) from Float(4,1) to Half(4,1)
[V] [TRT] After concat removal: 9 layers
[V] [TRT] a + b Set Tactic Name: ampere Tactic: 0x1
[V] [TRT] Engine Layer Information:
Layer(Reformat): r, Tactic: 0, x[Float(-7,3:8)] -> y[Half(-7,3:8)]
[V] [TRT] Engine generation completed in 1.5 seconds.
"""


@functools.cache
def texts() -> tuple[bytes, ...]:
    """Small logs of each grammar."""
    return (OTHERS.encode(), *(path.read_bytes() for path in (RTX, INCEPTION, REGIONS, SPARSE)))


@functools.cache
def net() -> Model:
    return tiny_model()


def parse_bytes(data: bytes) -> ParsedLog:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "build.log"
        path.write_bytes(data)
        return parse(path)


def read(data: bytes) -> ParsedLog | None:
    """What is read, checked for sense and taken all the way to the browser; None where it is refused."""
    try:
        parsed = parse_bytes(data)
    except ReadError:
        return None
    log = parsed.log
    assert 0 <= log.chosen < max(1, len(log.attempts))
    assert all(math.isfinite(r.milliseconds) and r.milliseconds >= 0 for t in log.tunings for r in t.timed)
    assert all(len(t.timed) <= 20 for t in log.tunings)
    assert list(range(len(parsed.layers))) == [layer.index for layer in parsed.layers]
    model = net()
    engine = Engine("trtexec", log.version, log.target, parsed.layers, maker=TENSORRT)
    found = replay_decisions(log, model, engine)
    assert found.coverage[1] == len(found.steps)
    for k in (0, len(found.steps) // 2, len(found.steps)):
        groups = found.get_groups(k)
        assert len({n for g in groups for n in g}) == sum(len(g) for g in groups)
    assert all(c.candidates for c in find_contests(log))
    encode(build_story(log, model, engine))
    return parsed


@given(st.data())
def test_a_log_that_is_cut_anywhere_is_read_or_refused(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(texts()))
    end = data.draw(st.integers(0, len(text)))
    read(text[:end])
    read(text[end:])


@given(st.integers(0, 4), st.randoms(use_true_random=False))
def test_damage_anywhere_is_read_or_refused(which: int, luck: random.Random) -> None:
    text = texts()[which % len(texts())]
    start = luck.randrange(len(text))
    damaged = bytearray(text[max(0, start - 20_000) : start + 20_000])
    glue = [b"\n", b" with ", b" || ", b" to ", b"((", b"9" * 50, b"\x00", b"[", b"-"]
    for _ in range(luck.randrange(1, 30)):
        at, other, length = luck.randrange(len(damaged)), luck.randrange(len(damaged)), luck.randrange(1, 300)
        match luck.randrange(5):
            case 0:
                damaged[at] = luck.randrange(256)
            case 1:
                del damaged[at : at + length]
            case 2:
                damaged[other:other] = damaged[at : at + length]
            case 3:
                damaged[at:at] = luck.choice(glue)
            case _:
                damaged = damaged.replace(b"\n", b"", luck.randrange(3))
        if not damaged:
            return
    read(bytes(damaged))


@given(st.data())
def test_where_chunks_end_changes_nothing(data: st.DataObject) -> None:
    code = data.draw(st.sampled_from(["utf-8", "utf-16", "utf-16-be"]))
    text = OTHERS.replace("ampere", "ampère").encode(code)
    with mock.patch.object(verbose, "_CHUNK", data.draw(st.integers(64, len(text)))):
        pieces = parse_bytes(text)
    assert parse_bytes(text) == pieces


# A name must not hold what ends a line, or what ends a sentence of the log.
CHARACTERS = st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\x85\u2028\u2029")
names = st.text(CHARACTERS, min_size=1)
names = names.filter(lambda n: n == n.strip() and " with " not in f" {n} ")


@given(names, names)
@example("a + b", "PWN(c, d)")
@example("[V] x", "8 layers")
def test_any_two_names_can_be_fused(first: str, second: str) -> None:
    log = parse(
        f"[V] [TRT] Original: 2 layers\n[V] [TRT] Fusing {first} with {second}\n[V] [TRT] After x: 1 layers\n"
    ).log
    ((decision,),) = [p.decisions for p in log.attempts[0].passes]
    assert (first, second) == decision.names


def test_a_part_of_a_log_tells_a_part_of_what_the_whole_tells() -> None:
    """Line by line, decisions and times become more, up to the 21 and 7 that were written into it."""
    rows = INCEPTION.read_bytes().splitlines(keepends=True)
    before = (0, 0)
    for end in range(1, len(rows) + 1):
        parsed = read(b"".join(rows[:end]))
        log = parsed.log if parsed else BuildLog()
        decisions = sum(len(p.decisions) for a in log.attempts for p in a.passes)
        now = decisions, sum(t.count for t in log.tunings)
        assert all(b <= n for b, n in zip(before, now, strict=True))
        before = now
    assert (21, 7) == before
