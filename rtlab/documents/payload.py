"""Payloads as bytes: JSON under gzip."""

from __future__ import annotations

import gzip
import json
from typing import Any

import msgspec

from rtlab.documents.serialization import to_builtins


def encode(payload: Any) -> bytes:
    """A value of the contract as gzipped JSON: NaN is null, a lone surrogate a question mark."""
    plain = to_builtins(payload)
    try:
        text = msgspec.json.encode(plain)
    except (UnicodeEncodeError, OverflowError):
        # A lone surrogate, or an integer of more than 64 bits.
        text = json.dumps(plain, ensure_ascii=False).encode("utf-8", "replace")
    return gzip.compress(text, compresslevel=6, mtime=0)


def decode(data: bytes) -> Any:
    """The inverse of ``encode``, as builtins."""
    return msgspec.json.decode(gzip.decompress(data))
