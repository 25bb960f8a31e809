"""Findings of any command as SARIF 2.1.0 (OASIS), which code scanning services read. Pure."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Sequence
from typing import Any, Final, Literal
from urllib.parse import quote

import msgspec

_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"

Level = Literal["error", "warning", "note"]
"""How bad a finding is."""

_is_scheme: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*").fullmatch
_is_no_escape: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


class SarifRule(msgspec.Struct, frozen=True):
    """A kind of finding.

    Attributes:
        id: Its name, which stays the same.
        level: How bad it is.
        text: What it means, in a sentence.
    """

    id: str
    level: Level
    text: str


class SarifResult(msgspec.Struct, frozen=True, kw_only=True):
    """A finding.

    Attributes:
        rule: Id of its rule.
        message: What is wrong, in a sentence.
        path: The file or directory that it is about.
        level: How bad it is, if not as its rule says.
        span: Half-open range of bytes in the file, or None.
        parts: Names of parts of the file, such as tensors.
        part_kind: What these parts are.
        properties: Anything else.
    """

    rule: str
    message: str
    path: str
    level: Level | None = None
    span: tuple[int, int] | None = None
    parts: Sequence[str] = ()
    part_kind: str = "member"
    properties: dict[str, Any] = {}


def sarif_text(
    command: str, rules: Collection[SarifRule], results: Collection[SarifResult], *, about: Sequence[str]
) -> str:
    """Return the document of a command's findings, in ASCII; `about` says which files were looked at.

    Documents about different files have different ids, so that a service shows them side by side.
    """
    id_ = "/".join(["tensorkeep", command, *map(_uri, about[:1])])
    places = {path: place for place, path in enumerate(dict.fromkeys([*about, *(each.path for each in results)]))}
    known = {rule.id: (number, rule) for number, rule in enumerate(rules)}
    run = {
        "tool": {"driver": {"name": "tensorkeep", "rules": list(map(_rule, rules))}},
        "automationDetails": {"id": f"{id_}/"},
        "columnKind": "unicodeCodePoints",
        "artifacts": [{"location": {"uri": _uri(path)}} for path in places],
        "results": [_result(each, *known[each.rule], places[each.path]) for each in results],
    }
    document = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(document, indent=2).replace("\x7f", r"\u007f")


def _rule(rule: SarifRule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "shortDescription": {"text": rule.text},
        "defaultConfiguration": {"level": rule.level},
    }


def _result(result: SarifResult, number: int, rule: SarifRule, place: int) -> dict[str, Any]:
    physical: dict[str, Any] = {"artifactLocation": {"uri": _uri(result.path), "index": place}}
    if result.span is not None:
        start, stop = result.span
        physical["region"] = {"byteOffset": start, "byteLength": stop - start}
    location: dict[str, Any] = {"physicalLocation": physical}
    if result.parts:
        location["logicalLocations"] = [
            {"fullyQualifiedName": part, "kind": result.part_kind} for part in result.parts
        ]
    return {
        "ruleId": rule.id,
        "ruleIndex": number,
        "level": result.level or rule.level,
        "message": {"text": result.message},
        "locations": [location],
        **({"properties": result.properties} if result.properties else {}),
    }


def _uri(path: str) -> str:
    """Return a path as a URI, relative if the path is; a URL stays as it is, but for characters that no URI has."""
    scheme, mark, rest = path.partition("://")
    if mark and _is_scheme(scheme):
        kept = _is_no_escape.sub("%25", rest)
        return f"{scheme}{mark}{quote(os.fsencode(kept), safe='/:@%~')}"
    slashed = os.fsencode(path).replace(os.sep.encode(), b"/")
    return f"{'file://' if os.path.isabs(path) else ''}{quote(slashed)}"
