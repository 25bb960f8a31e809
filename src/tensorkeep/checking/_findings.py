"""What a check finds, as a value. Pure."""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice
from typing import Final, Literal

import msgspec

Severity = Literal["error", "warning", "note"]
"""`"error"`: loading fails or gives a wrong model; `"warning"`: very likely wrong; `"note"`: worth knowing, and
sound."""

SEVERITIES: Final[tuple[Severity, ...]] = ("error", "warning", "note")
"""From worst to best."""

_N_EXAMPLES: Final = 5
_MAX_CHARS: Final = 300
"""Characters of a name that are kept: some are as long as a header allows."""


class CheckFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing in a checkpoint that makes no sense, or may not.

    `str()` gives one line for people.

    Attributes:
        code: What is wrong, such as `"layer-missing"`.
        severity: `"error"`: loading fails or gives a wrong model; `"warning"`: very likely wrong; `"note"`: worth
            knowing, and sound.
        message: The same in a sentence.
        tensors: Names of the first few tensors it is about.
        n_tensors: Number of all of them.
        expected: What should be there, or None.
        found: What is there, or None.
        advice: What to do about it, or None.
    """

    code: str
    severity: Severity
    message: str
    tensors: tuple[str, ...] = ()
    n_tensors: int = 0
    expected: str | None = None
    found: str | None = None
    advice: str | None = None

    def __str__(self) -> str:
        facts = [f"{label} {fact}" for label, fact in (("expected", self.expected), ("found", self.found)) if fact]
        text = f"{self.severity}: {self.message}"
        return f"{text}: {', '.join(facts)}" if facts else text


def finding_about(
    code: str,
    severity: Severity,
    message: str,
    tensors: Collection[str] = (),
    *,
    expected: str | None = None,
    found: str | None = None,
    advice: str | None = None,
) -> CheckFinding:
    """Return a finding about any number of tensors, with the names of a few."""
    return CheckFinding(
        code=code,
        severity=severity,
        message=message,
        tensors=tuple(name[:_MAX_CHARS] for name in islice(tensors, _N_EXAMPLES)),
        n_tensors=len(tensors),
        expected=expected,
        found=found,
        advice=advice,
    )
