"""Valid pickles and files of pickles, of every form and protocol: the seeds of the mutations."""

from __future__ import annotations

import io
import pickle
import pickletools
import struct
import tarfile
import warnings
from argparse import Namespace
from collections import Counter, OrderedDict, defaultdict, deque
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from pathlib import PurePosixPath
from typing import Any
from zipfile import ZipFile

import numpy as np
import torch

__all__ = ["Parts", "files", "parts_of", "seeds"]

Parts = list[bytes]
"""A pickle's opcodes, each with its argument."""


def parts_of(data: bytes) -> Parts:
    """Split a pickle into its opcodes with their arguments."""
    places = [place for _, _, place in pickletools.genops(data) if place is not None]
    return [data[begin:end] for begin, end in zip(places, [*places[1:], len(data)], strict=True)]


class _Plain:
    """An object of an unknown class."""

    def __init__(self) -> None:
        self.attributes = {"a": [1, 2], "self": self}


def _plain_values() -> list[Any]:
    shared = [1, 2.5, "text", b"bytes"]
    return [
        None,
        {"a": 1, "b": [True, False, None], ("c", 2): {"d": (1,), "e": (1, 2), "f": (1, 2, 3), "g": (1, 2, 3, 4)}},
        [shared, shared, {"shared": shared}],
        {1, 2, 3},
        frozenset({"a", ("b", 1)}),
        [-1, 255, 256, 65_536, 2**31, -(2**40), 2**200, 1e300, 0.1, "é𝄞\n", b"\0\xff", bytearray(b"abc"), 1 + 2j],
        OrderedDict(a=1, b=OrderedDict()),
        [Counter("aab"), deque([1, 2], 5), defaultdict(list, {"a": [1]}), range(5), slice(1, 2, 3)],
        [datetime(2024, 1, 2, tzinfo=UTC), timedelta(3), Decimal("1.5"), "x" * 300, b"y" * 300],
        {number: str(number) for number in range(30)},
    ]


def _torch_values() -> list[Any]:
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    tensor = torch.arange(12.0).reshape(3, 4)
    optimizer = torch.optim.Adam(module.parameters())
    return [
        module.state_dict(),
        optimizer.state_dict(),
        [tensor, tensor.T, tensor[1], tensor.expand(2, 3, 4), torch.nn.Parameter(tensor), tensor.to(torch.bfloat16)],
        [tensor.to_sparse(), tensor.to_sparse_csr(), torch.quantize_per_tensor(tensor, 0.1, 0, torch.qint8)],
        [torch.zeros(2, dtype=torch.complex64).conj(), torch.zeros(0), torch.tensor(1), tensor.to(torch.float8_e5m2)],
        {
            "size": torch.Size([1, 2]),
            "dtype": torch.float16,
            "device": torch.device("cuda:1"),
            "layout": torch.strided,
        },
        torch.empty(3, device="meta"),
    ]


def _other_values() -> list[Any]:
    return [
        [np.arange(6.0).reshape(2, 3), np.float32(1.5), np.array(["a", "bc"]), np.dtype("<i4")],
        [
            np.asfortranarray(np.ones((2, 2))),
            np.array([None, "x"], dtype=object),
            np.datetime64("2024", "ns"),
        ],
        Namespace(a=1, b=[2], path=PurePosixPath("/a/b")),
        _Plain(),
        {"callback": len, "class": torch.nn.ReLU, "error": ValueError("x")},
    ]


@cache
def seeds(*, plain: bool = False) -> list[Parts]:
    """Return valid pickles, split into opcodes.

    Args:
        plain: Only plain data, which is safe for Python's own readers.
    """
    pickles = [pickle.dumps(value, protocol) for value in _plain_values() for protocol in range(6)]
    if not plain:
        pickles += [pickle.dumps(value, protocol) for value in _other_values() for protocol in range(2, 6)]
        pickles += [_pickle_in(file) for file in files() if file[:2] == b"PK"]
    return [parts_of(data) for data in pickles if len(data) < 20_000]


def _pickle_in(file: bytes) -> bytes:
    with ZipFile(io.BytesIO(file)) as archive:
        name = next(name for name in archive.namelist() if name.endswith("data.pkl"))
        return archive.read(name)


@cache
def files() -> list[bytes]:
    """Return valid files: archives of three protocols, legacy streams, a tar archive, and bare pickles."""
    made = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that some tensors are a prototype
        for value in (*_torch_values(), *_other_values()):
            for protocol, is_zip in ((2, True), (4, True), (5, True), (2, False)):
                file = io.BytesIO()
                torch.save(value, file, pickle_protocol=protocol, _use_new_zipfile_serialization=is_zip)
                made.append(file.getvalue())
        scripted = io.BytesIO()
        torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), scripted)
    made += [scripted.getvalue(), _tar()]
    made += [pickle.dumps(value, 4) for value in _plain_values()]
    return made


def _tar() -> bytes:
    """Return an archive like those of torch 0.1: one storage, a view of it, and two tensors."""
    numbers = torch.arange(6, dtype=torch.float32).numpy().tobytes()
    storages = (1, (10, "cpu", torch.FloatStorage), struct.pack("<q", 6), numbers, [(11, 10, 2, 4)])
    first = ((1, 10, torch.FloatTensor), struct.pack("<i4x5q", 2, 2, 3, 3, 1, 0))
    second = ((2, 11, torch.FloatTensor), struct.pack("<i4x3q", 1, 2, 2, 0))
    members = {
        "sys_info": (
            {"protocol_version": 1000, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}},
        ),
        "pickle": (b"\x80\x02}q\x00(U\x01aU\x011QU\x01bU\x012Qu.",),
        "tensors": (2, *first, *second),
        "storages": storages,
    }
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:") as tar:
        for name, parts in members.items():
            data = b"".join(part if type(part) is bytes else pickle.dumps(part, 2) for part in parts)
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return file.getvalue()
