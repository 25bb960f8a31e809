"""Collects the findings of one file."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager

from tensorkeep.errors import LimitError, TensorkeepError
from tensorkeep.formats.archives import Member
from tensorkeep.formats.pickles import Mention
from tensorkeep.scanner._content import Content
from tensorkeep.scanner._report import ScanFinding, Severity

_MAX_INFLATED_NBYTES = 2**30
_MAX_INFLATION = 64
"""Most bytes decompressed per file: this many (about 3 s), and that many more for each of its bytes."""

_UNKNOWN = "is not known to be data"
_SCRIPTED = "is a class of the TorchScript program in the file"


class FindingLog:
    """Everything found in one file.

    Attributes:
        form: The format of the file; empty while unknown.
        findings: Everything that is not plain data, in order.
        known_names: Names found that are in the table of known data.
        n_pickles: Number of pickles scanned.
        ignores_texts: Whether the format counts as unknown if a reader of pickles only imports a module and fails.
        modules: Modules whose code lies beside the file; a text that imports one of them is never ignored.
    """

    def __init__(self, nbytes: int, *, ignores_texts: bool = False, modules: Collection[str] = ()) -> None:
        self.ignores_texts = ignores_texts
        self.modules = modules
        self.form = ""
        self.findings: dict[ScanFinding, None] = {}
        self.known_names: set[str] = set()
        self.n_pickles = 0
        self._seen: set[Member] = set()
        self._n_left = self._n_allowed = _MAX_INFLATED_NBYTES + _MAX_INFLATION * nbytes

    def spend(self, nbytes: int) -> None:
        """Count decompressed bytes, and refuse too many."""
        self._n_left -= nbytes
        if self._n_left < 0:
            raise LimitError(
                "the file decompresses to more than the limit",
                expected=f"at most {self._n_allowed:,} bytes",
            )

    def note_seen(self, members: Iterable[Member], content: Content) -> None:
        """Remember the scanned members of an archive in another; those in decompressed copies are forgotten."""
        if content.place and not content.is_copy:
            self._seen.update(members)

    def has_seen(self, members: Iterable[Member], content: Content) -> bool:
        """Say whether all members of an archive are known as those of another archive in the file."""
        return not content.is_copy and self._seen.issuperset(members)

    def name_form(self, form: str, content: Content) -> None:
        """Set the form of the file, if the content is the file itself."""
        if not content.place and not self.form:
            self.form = form

    def add(self, severity: Severity, message: str, content: Content, position: int | None = None) -> None:
        """Add a finding that is not about a name."""
        finding = ScanFinding(
            severity=severity,
            message=message,
            member=content.member,
            position=position,
            offset=content.offset(position),
        )
        self.findings[finding] = None

    def add_mentions(self, mentions: Iterable[Mention], content: Content) -> None:
        """Add the names of a pickle."""
        for mention in mentions:
            name = f"{mention.module}.{mention.name}"
            if mention.is_known:
                self.known_names.add(name)
                continue
            danger = mention.danger
            severity: Severity = "unknown" if danger is None else "dangerous" if danger.is_certain else "suspicious"
            finding = ScanFinding(
                severity=severity,
                message=danger.reason
                if danger
                else _SCRIPTED
                if mention.module.startswith("__torch__")
                else _UNKNOWN,
                member=content.member,
                position=mention.position,
                offset=content.offset(mention.position),
                name=name,
                deeds=mention.deeds,
                count=mention.count,
                arguments=mention.arguments,
                is_swept=mention.is_swept,
            )
            self.findings[finding] = None

    @contextmanager
    def recording_errors(self, content: Content) -> Iterator[None]:
        """Turn errors in the block into findings, since unreadable content was not scanned."""
        try:
            yield
        except TensorkeepError as error:
            self.add("unreadable", error_text(error), content)


def error_text(error: TensorkeepError) -> str:
    """Return the message of an error without the path."""
    facts = [f"{label} {fact}" for label, fact in (("expected", error.expected), ("found", error.found)) if fact]
    return f"{error.message}: {', '.join(facts)}" if facts else error.message
