"""Tests of recordings are collected only where ``RTLAB_RECORDED`` names their folder."""

import os

collect_ignore_glob = [] if os.environ.get("RTLAB_RECORDED") else ["test_*.py"]
