"""Benchmarks in the browser use the browser tests' own server and page."""

from browser.conftest import chromium, lab, lab_page

__all__ = ["chromium", "lab", "lab_page"]
