"""What large weights take in memory, as a multiple of them: beyond the same work on a small model of the same shape.

Only memory of the processes' own counts: pages of a mapped file are the system's to take back.
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from large_decoders import write_decoder

#: Decoders with 0.3 GB of weights, none of which is a tenth of them, and with 3 GiB, by type.
SCALED = {"fp32": {"layers": 5, "hidden": 1024}, "fp16": {"layers": 10, "hidden": 1024}}
WHOLE = {"fp32": {"layers": 14, "hidden": 2048}, "fp16": {"layers": 28, "hidden": 2048}}
DTYPES = {"fp32": np.float32, "fp16": np.float16}
#: Whatever is done to a model takes so many times its weights, and a gigabyte.
MOST, BESIDE = 1.3, 10**9
_GRAPH = """
import sys
import rtlab
from rtlab.web.page.graph import source_graph
model = rtlab.load(sys.argv[1])
source_graph(model)
"""
WORKS = {
    "graph": _GRAPH,
    "digest": _GRAPH + "model.digest",
    "extract": _GRAPH + "model.extract(n.id for n in model.top).structure",
    **{
        precision: f"""
import sys
from rtlab.cli import main
sys.exit(main(["prepare", sys.argv[1], "-o", sys.argv[1] + ".out.onnx", "--precision", "{precision}"]))
"""
        for precision in ("fp16", "int8")
    },
}
#: TensorRT-RTX 1.7.1, and the bytes that are free before it is begun with the largest.
BUILDER, FREE = 3.2, 14 * 10**9


def anonymous(process: psutil.Process) -> int:
    """Bytes of a process that are no file's; none of one that has ended."""
    with contextlib.suppress(psutil.Error, OSError):
        status = Path(f"/proc/{process.pid}/status").read_text()
        return 1024 * int(re.search(r"RssAnon:\s+(\d+)", status)[1]) if "RssAnon" in status else 0
    return 0


def peak(script: str, path: Path, *, apart: bool = False) -> int:
    """Bytes that a program and its children had at most, all together; ``apart``, that of the children is no part."""
    process = subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.DEVNULL)
    most = 0
    while process.poll() is None:
        with contextlib.suppress(psutil.Error):
            root = psutil.Process(process.pid)
            most = max(most, sum(map(anonymous, [root, *([] if apart else root.children(recursive=True))])))
        time.sleep(0.01)
    assert 0 == process.returncode
    return most


def most_of_a_run(request: pytest.FixtureRequest, weight_bytes: int) -> float:
    """ONNX Runtime turns 16 bits into FP32, twice the bytes, and up to 1 GiB puts them into another order."""
    kind = request.node.callspec.id.split("-")[0]
    return {"fp32": MOST, "fp16": 2.5 if weight_bytes >= 1 << 30 else 3.2}[kind]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((kind, sizes), marks=[pytest.mark.whole] if sizes is WHOLE else [], id=f"{kind}-{name}")
        for name, sizes in (("scaled", SCALED), ("whole", WHOLE))
        for kind in ("fp32", "fp16")
    ],
)
def decoders(request, tmp_path_factory) -> Iterator[tuple[Path, Path, int]]:
    """A large decoder, a small one, and the bytes of the weights that the one has more."""
    kind, sizes = request.param
    folder = tmp_path_factory.mktemp("decoders")
    if sizes is WHOLE and psutil.virtual_memory().available < 12 * 10**9:
        pytest.skip("less than 12 GB are free")
    large, small = folder / "large.onnx", folder / "small.onnx"
    dtype = DTYPES[kind]
    size = write_decoder(large, vocabulary=32_000 if sizes is WHOLE else 8_000, dtype=dtype, **sizes[kind])
    rest = write_decoder(small, vocabulary=64, dtype=dtype, layers=sizes[kind]["layers"], hidden=64)
    yield large, small, size - rest
    for path in folder.iterdir():
        path.unlink()


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
@pytest.mark.parametrize("work", WORKS)
def test_weights_are_never_copied_as_a_whole(benchmark, request, decoders, work: str) -> None:
    """1.3 times the weights and a gigabyte are asked; of small ones, what is more than for a small model counts.

    INT8 is calibrated before, which is a run on the CPU.
    """
    large, small, weight_bytes = decoders
    more, less = benchmark.pedantic(
        lambda: tuple(peak(WORKS[work], path) for path in (large, small)), rounds=1, iterations=1
    )
    benchmark.extra_info |= {"by the weights": (more - less) / weight_bytes, "bytes": more}
    most = most_of_a_run(request, weight_bytes) if work == "int8" else MOST
    assert more <= most * weight_bytes + BESIDE
    assert more - less <= most * weight_bytes


_RUN = """
import sys
from rtlab.cli import main
sys.exit(main(["inspect", sys.argv[1], "--backend", "onnxruntime", "--budget", "20"]))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_sessions_on_the_cpu_take_turns_with_the_weights(benchmark, request, decoders) -> None:
    """Those of the session that is timed, and of the one with the profiler."""
    large, small, weight_bytes = decoders
    more, less = benchmark.pedantic(
        lambda: tuple(peak(_RUN, path) for path in (large, small)), rounds=1, iterations=1
    )
    benchmark.extra_info |= {"by the weights": (more - less) / weight_bytes, "bytes": more}
    most = most_of_a_run(request, weight_bytes)
    assert more - less <= most * weight_bytes + (BESIDE if weight_bytes >= 1 << 30 else 0)


_BUILD = """
import sys
from rtlab.cli import main
sys.exit(main(["inspect", sys.argv[1], "--no-run"]))
"""


@pytest.mark.skipif(importlib.util.find_spec("tensorrt_rtx") is None, reason="there is no builder")
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_a_builder_takes_what_is_announced_and_rtlab_next_to_nothing(benchmark, decoders) -> None:
    """The weights go from their file to the builder, which is a child; memory that is missing is a test of units."""
    large, small, weight_bytes = decoders
    if weight_bytes >= 1 << 30 and psutil.virtual_memory().available < FREE:
        pytest.skip("less than 14 GB are free")
    own, more, less = benchmark.pedantic(
        lambda: (peak(_BUILD, large, apart=True), *(peak(_BUILD, path) for path in (large, small))),
        rounds=1,
        iterations=1,
    )
    benchmark.extra_info |= {"by the weights": (more - less) / weight_bytes, "own": own}
    assert own <= BESIDE
    assert more - less <= BUILDER * weight_bytes


@pytest.mark.parametrize("seconds", [5, 40])
def test_a_command_ends_within_its_budget_and_says_how_far_it_came(decoders, care, seconds: int) -> None:
    """A build is shown with what was measured by then, or the graph alone, and in what the time was over."""
    large, _, _ = decoders
    began = time.monotonic()
    command = ["inspect", str(large), "--precision", "int8", "--budget", str(seconds)]
    done = subprocess.run(
        [sys.executable, "-m", "rtlab", *command],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert time.monotonic() - began <= care.most(seconds + 1.0)
    lines = done.stdout.splitlines()
    if done.returncode:
        assert "graph: " in done.stdout or not lines
        assert re.search(rf"in {seconds} s: the time of --budget was used up", done.stderr)
    else:
        assert any(line.startswith("compiled: ") for line in lines)
        assert any(
            re.match(r"(not )?(timed|compared)\b.*|whole inference: .*measured", line) for line in lines
        )
