"""What reading a large verbose log costs, beside a bare pass over its lines, in time and in memory."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

from rtlab.backends.readers.log.verbose import parse

SIZE, SMALL = 100_000_000, 5_000_000

#: Parses the log and prints by how many MiB the process grew at its peak, and how many timings were found.
PEAK = """
import json, psutil, sys, threading
from pathlib import Path
from rtlab.backends.readers.log.verbose import parse
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


def large(path: Path, size: int) -> int:
    """Write one build of a network with very many layers; the number of its timings.

    As in a log of TensorRT 10, nine lines of ten time a tactic, one of four in the table of a region, and names
    of tactics have 120 characters.
    """
    head, tail = "[01/02/2024-03:04:05] [V] [TRT] ", f"_invented_{'x' * 110}"
    written = timings = layer = 0
    with path.open("w", encoding="utf-8") as file:
        file.write(f"{head}Original: 9 layers\n{head}After vertical fusions: 9 layers\n")
        while written < size:
            name, region = f"block{layer}/conv + block{layer}/act", f"{{ForeignNode[block{layer}/fc]}}"
            runner, tactic = f"{name} (CaskConvolution[0x80000009])", f"Tactic: 0x{0:016x}"
            lines = [f"=============== Computing costs for {name}"]
            for vectors in (f"Half({1 << n},1:8)" for n in range(4)):
                lines += [
                    f"*************** Autotuning format combination: {vectors} -> {vectors} ***************",
                    f"--------------- Timing Runner: {runner}",
                    *(f"Tactic Name: fprop{i}{tail} Tactic: 0x{i:016x} Time: {4 + i}e-3" for i in range(60)),
                    f"{runner} profiling completed in 0.1 seconds. Fastest {tactic} Time: 0.004",
                    f"Skipping CaskFlattenConvolution: No valid tactics for {name}",
                    f">>>>>>>>>>>>>>> Chose Runner Type: CaskConvolution {tactic}",
                ]
            lines += [
                f"--------------- Timing Runner: {region} (Myelin[0x80000023])",
                f" (foreignNode) Autotuning op fc: [ONNX Layer: block{layer}/fc]",
                *(f" (foreignNode) {i:4}, {1 + i}e-2, 1.0, 0.9, gemm{tail}, {i + 1:#x}," for i in range(80)),
                f"{tactic} Time: 0.02",
            ]
            timings, layer = timings + 4 * 60 + 80 + 1, layer + 1
            written += file.write("".join(f"{head}{line}\n" for line in lines))
        file.write(f"{head}Engine generation completed in 1.5 seconds.\n")
    return timings


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
