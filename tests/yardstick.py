"""Prints how fast this machine is now: seconds of a fixed loop of Python and of fixed NumPy work.

Minutes of two runs are compared beside these: about 1.0 s each on the processor that they were chosen on.
"""

import sys
import time

import numpy as np


def time_python() -> float:
    start, total = time.perf_counter(), 0
    for i in range(12_000_000):
        total += i & 7
    return time.perf_counter() - start


def time_numpy() -> float:
    numbers = np.random.default_rng(0).standard_normal((1000, 1000)).astype(np.float32)
    start = time.perf_counter()
    for _ in range(10):
        np.sort(numbers, axis=1)
        numbers @ numbers
    return time.perf_counter() - start


sys.stdout.write(f"\nYardstick: Python {time_python():.2f} s, NumPy {time_numpy():.2f} s\n")
