"""Some hundreds of random files, of which real readers load the clean ones; `make fuzz` makes a hundred thousand."""

from __future__ import annotations

import io
import json
import pickle
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

from fuzz.scans.children import Children, Finding, Question
from fuzz.scans.files import random_file
from fuzz.scans.keras_models import BYTECODE
from fuzz.scans.run import Tally, run
from tests.support.soak import SEED, rounds


@pytest.fixture(scope="module")
def children(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Children]:
    with Children([sys.executable], tmp_path_factory.mktemp("readers")) as started:
        yield started


def findings(children: Children, *questions: Question) -> list[list[Finding] | str]:
    children.ask(questions)
    (answers,) = children.answers().values()
    return answers


@pytest.mark.soak
def test_no_reader_runs_what_is_called_clean(children: Children, tmp_path: Path) -> None:
    count = rounds(250, 1_000_000)
    tally = Tally()

    run(count, SEED, children, tally, tmp_path)

    if tally.failures:
        pytest.fail(tally.report(), pytrace=False)
    assert tally.verdicts.total() == count
    assert tally.verdicts["clean"] > count // 20


class Payload:
    def __reduce__(self) -> Any:
        return compile, ("1", "", "eval")


def zipped(data: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/b", data)
    return buffer.getvalue()


def array_of_payloads() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.arange(3))
    np.save(buffer, np.array([Payload()], dtype=object))
    return buffer.getvalue()


def test_readers_find_payloads_wherever_they_are(children: Children) -> None:
    data = pickle.dumps(Payload())
    files = [data, pickle.dumps(1) + data, zipped(zipped(data)), array_of_payloads(), zipped(array_of_payloads())]

    names = ("numpy._core.multiarray._reconstruct", "numpy.ndarray", "numpy.dtype")

    for found in findings(children, *(Question(file, names) for file in files)):
        assert {(finding.event, finding.details) for finding in found} == {("pickle.find_class", "builtins.compile")}


def test_every_reader_sees_a_payload(children: Children) -> None:
    buffer = io.BytesIO()
    torch.save({"weight": torch.ones(2), "extra": Payload()}, buffer)
    names = ("torch._utils._rebuild_tensor_v2", "torch.FloatStorage", "collections.OrderedDict")
    pickled, saved = findings(children, Question(pickle.dumps(Payload())), Question(buffer.getvalue(), names))

    readers = {finding.reader for finding in pickled}
    assert {"C pickle.loads", "C pickle, unbuffered file", "Python pickle, file", "numpy, path"} <= readers
    assert {"joblib, memory", "torch, path"} <= readers
    assert {"torch, memory", "torch, path"} <= {finding.reader for finding in saved}


def test_keras_runs_the_code_of_a_model_in_hdf5(children: Children) -> None:
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        code = {"class_name": "__lambda__", "config": {"code": BYTECODE, "defaults": None, "closure": None}}
        layers = [{"class_name": "Lambda", "config": {"name": "l", "function": code}}]
        config = {"class_name": "Sequential", "config": {"name": "s", "layers": layers}}
        file.attrs["model_config"] = json.dumps(config)

    (found,) = findings(children, Question(buffer.getvalue()))

    assert {finding.reader for finding in found} == {"keras"}


def test_readers_of_harmless_files_do_nothing_else(children: Children) -> None:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, a=np.arange(3), b=np.ones(2))
    files = [buffer.getvalue(), zipped(pickle.dumps([{"a": "é"}], 0)), b"", b"\x80", b"PK\x03\x04"]

    assert findings(children, *map(Question, files)) == [[]] * len(files)


def test_equal_seeds_give_equal_files() -> None:
    files = [random_file(3, number) for number in range(50)]

    assert files == [random_file(3, number) for number in range(50)]
    assert len({file.data for file in files}) > 40
