"""Findings as SARIF 2.1.0 (OASIS), which code scanning services read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_RULES: Final = {
    "dangerous": ("error", "A pickle contains a name that could only do harm"),
    "unreadable": ("error", "A file cannot be read, so what it would run is unknown"),
    "suspicious": ("warning", "A pickle contains a name that may do harm"),
    "unknown": ("note", "A pickle contains a name that is not known to be data"),
}
"""Severity, which is also the rule id, to level and meaning."""


def sarif_document(files: Iterable[tuple[str, Sequence[Mapping[str, Any]]]]) -> dict[str, Any]:
    """Return the SARIF document of path and findings of each file."""
    scanned = list(files)
    return {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": {"name": "tensorkeep", "rules": [_rule(rule) for rule in _RULES]}},
                "columnKind": "unicodeCodePoints",
                "artifacts": [{"location": {"uri": _uri(path)}} for path, _ in scanned],
                "results": [
                    _result(path, place, finding)
                    for place, (path, findings) in enumerate(scanned)
                    for finding in findings
                ],
            }
        ],
    }


def _rule(rule: str) -> dict[str, Any]:
    level, text = _RULES[rule]
    return {"id": rule, "shortDescription": {"text": text}, "defaultConfiguration": {"level": level}}


def _result(path: str, index: int, finding: Mapping[str, Any]) -> dict[str, Any]:
    rule = finding["severity"]
    physical: dict[str, Any] = {"artifactLocation": {"uri": _uri(path), "index": index}}
    if finding["offset"] is not None:
        physical["region"] = {"byteOffset": finding["offset"], "byteLength": 1}
    location: dict[str, Any] = {"physicalLocation": physical}
    if finding["member"] is not None:
        location["logicalLocations"] = [{"fullyQualifiedName": finding["member"], "kind": "member"}]
    message = f"{finding['name']}: {finding['message']}" if finding["name"] else finding["message"]
    return {
        "ruleId": rule,
        "ruleIndex": list(_RULES).index(rule),
        "level": _RULES[rule][0],
        "message": {"text": message},
        "locations": [location],
        "properties": {key: finding[key] for key in ("name", "deeds", "count", "arguments", "position", "is_swept")},
    }


def _uri(path: str) -> str:
    """Return a path as a URI, relative if the path is."""
    slashed = os.fsencode(path).replace(os.sep.encode(), b"/")
    return f"{'file://' if os.path.isabs(path) else ''}{quote(slashed)}"
