"""Payloads as bytes: JSON under gzip."""

from __future__ import annotations

import gzip
import json
from typing import Any

import msgspec

from rtlab.documents.serialization import to_builtins

#: Fields of graphs, which have builtins alone: to convert those of 20,000 nodes would take a second.
_BUILTIN_FIELDS = frozenset({"graph", "boxes", "edges"})


def encode(payload: Any) -> bytes:
    """A value of the contract as gzipped JSON: NaN is null, a lone surrogate a question mark."""
    fields = payload if isinstance(payload, dict) else {}
    ready = {name: fields[name] for name in _BUILTIN_FIELDS & fields.keys()}
    plain = {**to_builtins({**fields, **dict.fromkeys(ready)}), **ready} if ready else to_builtins(payload)
    try:
        text = msgspec.json.encode(plain, enc_hook=to_builtins)
    except (UnicodeEncodeError, OverflowError):
        # A lone surrogate, or an integer of more than 64 bits.
        text = json.dumps(to_builtins(plain), ensure_ascii=False).encode("utf-8", "replace")
    return gzip.compress(text, compresslevel=6, mtime=0)


def decode(data: bytes) -> Any:
    """The inverse of ``encode``, as builtins."""
    return msgspec.json.decode(gzip.decompress(data))
