"""Samples that tests only look at, each made once in a process: to fit the weights of a large one takes a second."""

from __future__ import annotations

import functools

import rtlab

load = functools.cache(rtlab.samples.load)
