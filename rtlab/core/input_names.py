"""What inputs of language models are for, by the names that exporters give them."""

from __future__ import annotations

import re

_PAST = re.compile(
    r"^past|[._/]past[._/]|(?:key|value|kv)_cache|^cache[._]?.*(?:key|value|\d)", re.IGNORECASE
)
_PRESENT = re.compile(r"^(?:past|present)(?:_key_values?|_kv)?[._/]?", re.IGNORECASE)
_POSITIONS = re.compile(r"(?:^|[._])(?:position(?:s|_ids?)?|pos_ids?|cache_position)$", re.IGNORECASE)
_MASK = re.compile(r"mask(?!ed|_token)", re.IGNORECASE)
_PADDING = re.compile(r"pad(?:ding)?_mask", re.IGNORECASE)


def is_past(name: str) -> bool:
    """Whether an input holds keys or values of tokens before: ``past_key_values.0.key``."""
    return bool(_PAST.search(name)) and not is_positions(name)


def make_past_key(name: str) -> str:
    """What ``past_key_values.0.key`` and the output ``present.0.key`` have in common: ``0.key``."""
    return _PRESENT.sub("", name)


def is_positions(name: str) -> bool:
    """Whether an input counts tokens: ``position_ids``, ``cache_position``."""
    return bool(_POSITIONS.search(name))


def is_mask(name: str) -> bool:
    """Whether an input says which tokens count: ``attention_mask``."""
    return bool(_MASK.search(name))


def marks_padding(name: str) -> bool:
    """Whether a mask is true where a token does *not* count, as PyTorch's ``key_padding_mask``."""
    return bool(_PADDING.search(name))


def is_of_encoder(name: str) -> bool:
    """Whether an input of a decoder stands for what the encoder read: ``encoder_hidden_states``."""
    return "encoder" in re.split(r"[._/]", name.lower())
