"""Every hostile pickle of the corpus: what comes of it, that nothing of it runs, and what it costs."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch import _C

from fuzz.pickles_apart import Apart, Outcome, Reader
from tensorkeep.formats.pickles.containers._legacy_stream import LEGACY_MAGIC
from tests.support import forks
from tests.support.for_each import for_each
from tests.support.pickles.hostile_pickles import COMMAND, HOSTILE, MARKER, Hostile
from tests.support.soak import rounds

MAX_SECONDS = 2.0
"""Processor time for a small file, and again for each megabyte of a large one, on a busy machine."""

MAX_PEAK_NBYTES = 256 * 2**20

SMALL_NBYTES = 10_000
LIVE = [case for case in HOSTILE if case.is_live]


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apart]:
    with Apart(tmp_path_factory.mktemp("apart"), timeout_s=60) as reader:
        yield reader


@for_each("case", HOSTILE)
def test_a_hostile_pickle_is_refused_or_inert_and_cheap(apart: Apart, case: Hostile) -> None:
    outcome = apart.read(case.data)

    if case.errors:
        assert outcome.error in case.errors, outcome
        assert outcome.words.isprintable()
        assert len(outcome.words) < 4000
    else:
        assert outcome.error is None, outcome
        assert case.unknowns is None or outcome.unknowns == tuple(sorted(case.unknowns))
        assert case.shown is None or outcome.words == case.shown
    assert not (apart.folder / MARKER).exists()
    _assert_cheap(outcome, case)


@for_each("case", [case for case in HOSTILE if len(case.data) < SMALL_NBYTES or "UnsafeError" in case.errors])
def test_a_hostile_pickle_is_inert_where_alarms_are_only_recorded(apart: Apart, case: Hostile) -> None:
    outcome = apart.read(case.data, dangerous="record")

    assert outcome.error is None or outcome.error.endswith("Error"), outcome
    if "UnsafeError" in case.errors and case.unknowns is not None:
        assert outcome.error is None, outcome
        assert set(case.unknowns) <= set(outcome.unknowns)
    assert not (apart.folder / MARKER).exists()
    _assert_cheap(outcome, case)


def _assert_cheap(outcome: Outcome, case: Hostile) -> None:
    assert outcome.seconds < MAX_SECONDS * (1 + len(case.data) / 1e6)
    assert outcome.peak_nbytes < MAX_PEAK_NBYTES


def as_zip(data: bytes, folder: Path) -> bytes:
    """Return the archive that torch would have written around a pickle, without its storages."""
    path = folder / "made.pt"
    writer = _C.PyTorchFileWriter(str(path))
    writer.write_record("data.pkl", data, len(data))
    writer.write_record("byteorder", b"little", len(b"little"))
    writer.write_end_of_file()
    return path.read_bytes()


def as_legacy(data: bytes, folder: Path) -> bytes:
    """Return the legacy stream around a pickle, without storages."""
    system = {"protocol_version": 1001, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}
    before = b"".join(pickle.dumps(value, 2) for value in (LEGACY_MAGIC, 1001, system))
    return before + data + pickle.dumps([], 2)


@pytest.mark.parametrize("form", [as_zip, as_legacy])
def test_a_hostile_pickle_is_refused_in_every_form_of_file(apart: Apart, tmp_path: Path, form: object) -> None:
    assert callable(form)
    for case in HOSTILE:
        if case.errors and len(case.data) < SMALL_NBYTES:
            outcome = apart.read(form(case.data, tmp_path), "file")

            assert outcome.error is not None, case.name
            assert outcome.error.endswith("Error"), (case.name, outcome)
            assert outcome.error == "UnsafeError" or "UnsafeError" not in case.errors, (case.name, outcome)
    assert not (apart.folder / MARKER).exists()


@pytest.mark.soak
@pytest.mark.parametrize("reader", ["machine", "file"])
def test_no_pickle_of_the_corpus_that_is_cut_anywhere_leaks_an_error(apart: Apart, reader: Reader) -> None:
    for case in HOSTILE:
        if 60 < len(case.data) < 200:
            for length in range(2, len(case.data), rounds(61, 1)):
                outcome = apart.read(case.data[:length], reader)

                assert outcome.error is not None
                assert outcome.error.endswith("Error"), (case.name, length, outcome)
    assert not (apart.folder / MARKER).exists()


RUN = """
import os, pickle, sys
class Loader(pickle.Unpickler):
    def persistent_load(self, pid):
        return pid
for path in sys.argv[1:]:
    if os.fork() == 0:
        os.chdir(path)
        try:
            with open("hostile.pkl", "rb") as file:
                Loader(file).load()
        finally:
            os._exit(0)
    os.wait()
"""


def test_the_payloads_are_real(tmp_path: Path) -> None:
    """Python's own reader runs every one, so a marker that is absent means something."""
    folders = []
    for number, case in enumerate(LIVE):
        folders.append(tmp_path / str(number))
        folders[-1].mkdir()
        (folders[-1] / "hostile.pkl").write_bytes(case.data)

    done = forks.run(RUN, *folders)

    assert done.returncode == 0, done.stderr
    harmless = [case.name for case, folder in zip(LIVE, folders, strict=True) if not (folder / MARKER).exists()]
    assert not harmless
    assert len(LIVE) > 20


def test_the_corpus_has_one_name_for_each() -> None:
    assert len({case.name for case in HOSTILE}) == len(HOSTILE)
    assert len(HOSTILE) > 400
    assert COMMAND.startswith("touch")
    assert not os.path.exists(MARKER)  # where the tests run
