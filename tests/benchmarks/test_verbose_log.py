"""What reading a large verbose log costs, beside a bare pass over its lines, in time and in memory."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rtlab.backends.log.verbose import parse

# Recordings live beside the checkout, not in it.
LOG = Path(__file__).parents[3] / "shared" / "recorded" / "build-logs" / "mnist-trt10.16-h100-level5.log"
SIZE, SMALL = 100_000_000, 5_000_000

#: Parses the log and prints by how many MiB the process grew at its peak, and how many timings were found.
PEAK = """
import json, psutil, sys, threading
from pathlib import Path
from rtlab.backends.log.verbose import parse
me, done = psutil.Process(), threading.Event()
before = peak = me.memory_info().rss
def watch():
    global peak
    while not done.wait(0.005):
        peak = max(peak, me.memory_info().rss)
thread = threading.Thread(target=watch)
thread.start()
log = parse(Path(sys.argv[1])).log
done.set()
thread.join()
print(json.dumps([(max(peak, me.memory_info().rss) - before) / 2**20, sum(t.count for t in log.tunings)]))
"""


def large(path: Path, wanted: int) -> int:
    """Write one build of a network with very many layers, made of the recorded one; the number of its timings."""
    text = LOG.read_bytes()
    start = text.index(b"=============== Computing costs for")
    start = text.rindex(b"\n", 0, start) + 1
    end = text.rindex(b"\n", 0, text.index(b"Adding reformat layer")) + 1
    body = text[start:end]
    copies = wanted // len(body)
    with path.open("wb") as file:
        file.write(text[:start])
        for copy in range(copies):
            file.write(body.replace(b"node_", b"block%d_node_" % copy))
        file.write(text[end:])
    # Inside of a region each row of a table is one, and ends with the tactic.
    timings = [
        part.count(b" Time: ")
        - part.count(b"Fastest Tactic")
        + sum(b"(foreignNode)" in line and b", 0x" in line for line in part.splitlines())
        for part in (body, text)
    ]
    return (copies - 1) * timings[0] + timings[1]


@pytest.mark.skipif(not LOG.is_file(), reason="no ../shared/recorded beside the checkout")
def test_a_log_of_100_mb_is_read_in_a_few_passes_and_in_bounded_memory(
    benchmark, care, tmp_path: Path
) -> None:
    """At most 40 times a bare pass over the lines, which does nothing; what stays is far below the file's size."""
    path = tmp_path / "build.log"
    timings = large(path, care.size(SIZE, SMALL))
    size = path.stat().st_size
    bare: list[float] = []

    def peer() -> None:
        started = time.perf_counter()
        with path.open("rb") as file:
            for _ in file:
                pass
        bare.append(time.perf_counter() - started)

    log = benchmark.pedantic(lambda: parse(path).log, setup=peer, rounds=3)
    ours = benchmark.stats.stats.median
    ratio = ours / statistics.median(bare)
    child = subprocess.run(
        [sys.executable, "-c", PEAK, str(path)], check=True, capture_output=True, text=True
    )
    peak, counted = json.loads(child.stdout)
    told = {"MB/s": round(size / 1e6 / ours), "times a bare pass": round(ratio, 1), "peak MiB": round(peak)}
    benchmark.extra_info.update(told)
    sys.stdout.write(f"{told}\n")
    assert timings == sum(t.count for t in log.tunings) == counted
    assert ratio < care.most(40)
    assert peak < 100
