"""The small files of a model beside its weights, such as its configuration and tokenizer. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

MAX_COMPANION_NBYTES: Final = 2**26
"""Largest companion, in bytes; the largest tokenizers have 35 MB."""

SIGNATURE_SUFFIX: Final = ".sig"
USUAL_SIGNATURE: Final = "model" + SIGNATURE_SUFFIX
"""Signature to request from a server that does not list its files."""

USUAL_COMPANIONS: Final = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "preprocessor_config.json",
    "README.md",
    "model.provenance.json",
)
"""Companions to request from a server that does not list its files."""

_has_suffix = re.compile(r".+\.(?:json|jsonl|txt|model|vocab|tiktoken|jinja|md|yaml|yml)", re.IGNORECASE).fullmatch
_is_license = re.compile(r"(?:LICEN[CS]E|NOTICE|COPYING|USE_POLICY)[A-Za-z0-9_.-]*", re.IGNORECASE).fullmatch
_is_index = re.compile(r".*\.index(?:\.[^.]+)?\.json").fullmatch
_KEPT: Final = ("commit.json", ".head")
"""Endings of names that a transaction uses itself."""


def companions_among(names: Iterable[str]) -> list[str]:
    """Return the names of companions; code is never one."""
    return [
        name
        for name in names
        if (_has_suffix(name) or _is_license(name))
        and not _is_index(name)
        and not name.startswith((".", "tensorkeep."))
        and not name.endswith(_KEPT)
    ]


def is_page(head: bytes) -> bool:
    """Say whether a file is an HTML page: some servers answer with one instead of 404."""
    return head.lstrip()[:14].lower().startswith((b"<!doctype html", b"<html"))
