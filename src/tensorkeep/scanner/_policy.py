"""What a policy says of scanned files: findings for formats and pickles that it does not allow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Final

import msgspec

from tensorkeep.errors import TensorkeepError, TrustError
from tensorkeep.kinds import Place, policy_for
from tensorkeep.kinds.registry import find_kind
from tensorkeep.scanner._findings import error_text
from tensorkeep.scanner._report import ScanFinding, ScannedFile
from tensorkeep.transport import is_directory

if TYPE_CHECKING:
    from tensorkeep.trust import Policy, Trust

_USUAL: Final = "safetensors"
"""The format of what no other kind claims, and of the files of several kinds."""


class Judge:
    """Says what a policy refuses of the files at a path."""

    def __init__(self, root: str, trust: Trust | None) -> None:
        self._root = root
        self._policy: Policy | None = policy_for(trust, root)

    def judged(self, file: ScannedFile) -> ScannedFile:
        """Return what was found in a file, with what the policy refuses first."""
        if self._policy is None:
            return file
        refused = [
            ScanFinding(severity="refused", message=error_text(error)) for error in self._refusals(self._policy, file)
        ]
        return msgspec.structs.replace(file, findings=(*refused, *file.findings)) if refused else file

    def _refusals(self, policy: Policy, file: ScannedFile) -> Iterator[TrustError]:
        try:
            rule = policy.rule_for(file.path)
            rule.refuse_format(self._format_of(file), file.path)
            if file.n_pickles:
                rule.refuse_pickles(file.path, file.form)
        except TrustError as error:
            yield error

    def _format_of(self, file: ScannedFile) -> str:
        """Return the name by which rules know a file's format: its own, or its checkpoint's."""
        own = _USUAL if file.form == _USUAL else _format_at(file.path)
        return (self._format_of_root if own in {None, _USUAL} else None) or own or file.form

    @cached_property
    def _format_of_root(self) -> str | None:
        return _format_at(self._root) if is_directory(self._root) else None


def _format_at(path: str) -> str | None:
    """Return the format of what a kind recognizes at a path; None if none but the last one does."""
    with suppress(TensorkeepError):
        found = find_kind(Place(path, trusts_names=False))
        return None if found.format == _USUAL else found.format
    return None
