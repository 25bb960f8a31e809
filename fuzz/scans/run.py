"""Scans random files, and has the readers load those that are clean."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import tensorkeep
from fuzz.scans.children import Children, Finding, Question
from fuzz.scans.files import File, random_file
from fuzz.scans.guard import UNLISTED
from fuzz.scans.outlines import outlined

__all__ = ["BATCH", "Failure", "Tally", "run"]

BATCH = 400
_SHOWN = 400


class Failure(NamedTuple):
    """A clean file with which readers did more than read it."""

    number: int
    file: File
    findings: list[Finding]

    def __str__(self) -> str:
        """Describe it in two lines."""
        finding = self.findings[0]
        readers = len({(finding.version, finding.reader) for finding in self.findings})
        return (
            f"file {self.number}: {finding.reader} (Python {finding.version}; {readers} readers), "
            f"{finding.event} {finding.details}\n    {', '.join(self.file.notes)}\n    {self.file.data[:_SHOWN]!r}"
        )


class Tally:
    """What was made and found so far."""

    def __init__(self, folder: Path | None = None) -> None:
        """Start empty.

        Args:
            folder: Where files that differ are kept; None keeps none.
        """
        self.verdicts: Counter[str] = Counter()
        self.clean_forms: Counter[str] = Counter()
        self.differing: Counter[str] = Counter()
        self.deaths: Counter[str] = Counter()
        self.n_unlisted = 0
        self.n_outlined_apart = 0
        self.failures: list[Failure] = []
        self._folder = folder

    def add_failure(self, failure: Failure) -> None:
        """Count a file that is called clean and is not."""
        self.failures.append(failure)
        for version, reader in dict.fromkeys((finding.version, finding.reader) for finding in failure.findings):
            self.differing[f"{version}  {reader.rpartition(' > ')[2]}"] += 1
        if self._folder is not None:
            self._folder.mkdir(exist_ok=True)
            self._folder.joinpath(f"{failure.number}").write_bytes(failure.file.data)
            self._folder.joinpath(f"{failure.number}.txt").write_text(
                "\n".join([str(failure), *map(str, failure.findings)]), encoding="utf-8"
            )

    def report(self) -> str:
        """Return the tables."""
        total = self.verdicts.total()
        lines = [f"{total:,} files: " + ", ".join(f"{n:,} {verdict}" for verdict, n in self.verdicts.most_common())]
        lines += ["clean: " + ", ".join(f"{n:,} {form}" for form, n in self.clean_forms.most_common())]
        lines += [f"readers died of {n:,} files: {end}" for end, n in self.deaths.most_common()]
        lines += [f"{n:>9,}  {reader}" for reader, n in self.differing.most_common()]
        lines += [f"{self.n_unlisted:,} clean files have a name of the table that scan did not list"]
        lines += [f"{self.n_outlined_apart:,} files have another verdict if their long values are passed over"]
        lines += [str(failure) for failure in sorted(self.failures, key=lambda failure: len(failure.file.data))[:10]]
        return "\n".join([*lines, f"{len(self.failures):,} files are called clean and are not"])


def run(count: int, seed: int, children: Children, tally: Tally, folder: Path, *, first: int = 0) -> None:
    """Make files, scan them, and have all readers load the clean ones.

    Args:
        count: Number of files.
        seed: Equal seeds give equal files.
        children: The readers.
        tally: Counts the outcomes.
        folder: Where files are scanned.
        first: Number of the first file.
    """
    waiting: list[tuple[int, File]] = []
    for start in range(first, first + count, BATCH):
        clean: list[tuple[int, File]] = []
        questions = []
        for number in range(start, min(start + BATCH, first + count)):
            file = random_file(seed, number)
            scanned = _scanned(file, folder)
            tally.verdicts[scanned.verdict] += 1
            with outlined(number):
                again = _scanned(file, folder)
            tally.n_outlined_apart += again.verdict != scanned.verdict
            if scanned.verdict == "clean":
                tally.clean_forms[scanned.form] += 1
            if "clean" in {scanned.verdict, again.verdict}:
                clean.append((number, file))
                questions.append(Question(file.data, (again if again.verdict == "clean" else scanned).known_names))
        _collect(waiting, children, tally)  # of the batch before, loaded meanwhile
        if clean:
            children.ask(questions)
        waiting = clean
    _collect(waiting, children, tally)


def _scanned(file: File, folder: Path) -> tensorkeep.ScannedFile:
    path = folder / file.name
    path.write_bytes(file.data)
    try:
        (scanned,) = tensorkeep.scan(path).files
    finally:
        path.unlink()
    return scanned


def _collect(asked: list[tuple[int, File]], children: Children, tally: Tally) -> None:
    if not asked:
        return
    findings: list[list[Finding]] = [[] for _ in asked]
    for version, results in children.answers().items():
        for own, result in zip(findings, results, strict=True):
            if isinstance(result, str):
                tally.deaths[f"Python {version}, {result}"] += 1
            else:
                own.extend(result)
    for (number, file), own in zip(asked, findings, strict=True):
        bad = [finding for finding in own if finding.event != UNLISTED]
        tally.n_unlisted += not bad and bool(own)
        if bad:
            tally.add_failure(Failure(number, file, bad))
