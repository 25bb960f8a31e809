"""Legacy streams: of torch, of torch 0.x, of other machines, and such as nobody honest wrote."""

from __future__ import annotations

import io
import os
import pickle
import struct
import time
from collections import OrderedDict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tensorkeep.errors import FormatError, LimitError, PickleError, RefusedError, UnsafeError, UnsupportedError
from tensorkeep.formats.pickles import PickleLimits
from tensorkeep.formats.pickles.containers._legacy_stream import read_legacy
from tensorkeep.formats.pickles.machine._context import Context
from tensorkeep.formats.pickles.values._document import PickleDocument
from tensorkeep.formats.pickles.values._records import TensorRecord
from tensorkeep.transport import LocalFile, MemorySource
from tests.support.for_each import for_each
from tests.support.peak_memory import with_peak
from tests.support.pickles.legacy_files import MAGIC, Storage, Tensor, counted, legacy_file, object_pickle, saved
from tests.support.pickles.record_arrays import array_of, assert_same, bytes_of


def read(file: bytes, **options: Any) -> PickleDocument:
    return read_legacy(MemorySource(file, "model.pt"), Context(**options))


def loaded(file: bytes) -> Any:
    return torch.load(io.BytesIO(file), weights_only=False)


# Real files


def trained() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 2))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.rand(4, 5)).sum().backward()
    optimizer.step()
    return model, optimizer


def views() -> dict[str, torch.Tensor]:
    whole = torch.arange(24.0).view(4, 6)
    return {"whole": whole, "row": whole[1], "columns": whole[:, 1:4], "turned": whole.t(), "steps": whole[::2, ::3]}


def every_dtype() -> dict[str, torch.Tensor]:
    integers = ("bool", "uint8", "int8", "int16", "int32", "int64")
    floats = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")
    return {name: torch.tensor([0, 1, 2, 3, 100]).to(getattr(torch, name)) for name in integers + floats}


VALUES = {
    "a tensor": lambda: torch.arange(6.0).view(2, 3),
    "every dtype": every_dtype,
    "a state dict": lambda: trained()[0].state_dict(),
    "a checkpoint": lambda: {"model": trained()[0].state_dict(), "optimizer": trained()[1].state_dict(), "epoch": 3},
    "views": views,
    "tied": lambda: (lambda tensor: {"a": tensor, "b": tensor, "c": tensor.detach()})(torch.rand(4)),
    "parameters": lambda: [torch.nn.Parameter(torch.rand(3)), torch.nn.Parameter(torch.rand(2), requires_grad=False)],
    "with gradients": lambda: torch.rand(3, requires_grad=True),
    "expanded": lambda: torch.arange(3.0).expand(4, 3),
    "a scalar": lambda: torch.tensor(2.5),
    "nothing in it": lambda: {"flat": torch.empty(0), "deep": torch.empty(3, 0, 2), "none": None},
    "conjugated": lambda: torch.tensor([1 + 2j, 3 - 4j], dtype=torch.complex64).conj(),
    "negated": lambda: torch.tensor([1 + 2j, 3 - 4j], dtype=torch.complex64).conj().imag,
    "sparse": lambda: torch.eye(4).to_sparse(),
    "a storage": lambda: {"storage": torch.arange(5.0).storage(), "tensor": torch.ones(2)},
    "plain data": lambda: {"lr": 0.1, "name": "é", "betas": (0.9, 0.999), "steps": [1, 2**40], "on": True},
    "ordered": lambda: OrderedDict(b=torch.ones(1), a=torch.zeros(1)),
}


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("name", VALUES)
def test_what_torch_saves_is_what_it_would_load(name: str, protocol: int) -> None:
    file = saved(VALUES[name](), protocol)

    document = read(file)

    assert document.form == "legacy"
    assert_same(document.value, loaded(file), document, file)


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2"])
def test_storages_without_a_dtype_are_read_though_torch_itself_cannot(dtype: str) -> None:
    tensor = torch.tensor([0, 1, 2, 3, 6]).to(getattr(torch, dtype))
    file = saved([tensor, tensor[2:]])

    document = read(file)

    with pytest.raises(AttributeError):
        loaded(file)
    assert [array_of(record, document, file).tobytes() for record in document.value] == [
        bytes_of(tensor),
        bytes_of(tensor[2:]),
    ]


def test_many_tensors_are_read_through_windows_that_grow(tmp_path: Path) -> None:
    value = {f"layers.{i}.weight": torch.full((3,), float(i)) for i in range(3_000)}
    path = tmp_path / "model.pt"
    path.write_bytes(saved(value))

    document = read_legacy(LocalFile(str(path)), Context())

    assert path.stat().st_size > 400_000
    assert_same(document.value, value, document, path.read_bytes())


def test_storages_are_located_and_not_read(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    n_elements = 2**33
    tensor = Tensor(Storage(torch.FloatStorage, "7", n_elements), n_elements - 1, (1,), (1,))
    head = legacy_file(object_pickle({"last": tensor}), ["7"], [counted(b"", n_elements)])
    path.write_bytes(head)
    os.truncate(path, len(head) + 4 * n_elements)

    span, peak = with_peak(lambda: read_legacy(LocalFile(str(path)), Context()).spans["7"])

    assert (span.start, span.stop) == (len(head), path.stat().st_size)
    assert peak < 2**20


def test_events_tell_the_byte_of_the_file() -> None:
    file = saved({f"{i}": torch.ones(1) for i in range(300)})
    context = Context(keeps_events=True)

    read_legacy(MemorySource(file), context)

    assert context.events is not None
    assert [file[event.position : event.position + 1] for event in context.events] == [b"c"] * len(context.events)
    assert {event.name for event in context.events} == {"_rebuild_tensor_v2", "FloatStorage", "OrderedDict"}
    assert len(context.events) == 3


# Torch 0.x


def test_views_of_a_storage_are_views_of_the_whole() -> None:
    data = np.arange(10, dtype=np.float32).tobytes()
    whole = Storage(torch.FloatStorage, "100", 10)
    part = Storage(torch.FloatStorage, "100", 10, view=("200", 4, 6))
    tensors = {
        "whole": Tensor(whole, 0, (2, 5), (5, 1)),
        "part": Tensor(part, 0, (6,), (1,)),
        "inside": Tensor(part, 1, (2, 2), (3, 1)),
    }
    file = legacy_file(object_pickle(tensors), ["100"], [counted(data, 10)])

    document = read(file)

    assert_same(document.value, loaded(file), document, file)
    assert array_of(document.value["inside"], document, file).tolist() == [[5, 6], [8, 9]]
    assert list(document.storages) == ["100"]


def test_a_storage_of_which_only_a_part_is_used_is_there_as_a_whole() -> None:
    part = Storage(torch.LongStorage, "1", 8, view=("2", 6, 2))
    data = np.arange(8, dtype=np.int64).tobytes()
    file = legacy_file(object_pickle({"part": Tensor(part, 0, (2,), (1,))}), ["1"], [counted(data, 8)])

    document = read(file)

    assert_same(document.value, loaded(file), document, file)
    assert array_of(document.value["part"], document, file).tolist() == [6, 7]


def test_what_torch_wrote_on_python_2_is_read() -> None:
    def text(value: str) -> bytes:
        return b"U" + bytes([len(value)]) + value.encode()

    number = b"\x8a\x01\x04"
    storage = b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text("11") + text("cpu") + number + b"NtQ"
    tensor = b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"K\x00K\x04\x85K\x01\x85\x89NtR"
    system = b"\x80\x02}(" + text("protocol_version") + b"M\xe9\x03" + text("little_endian") + b"\x88u."
    value = b"\x80\x02}" + text("weight") + tensor + b"s."
    file = legacy_file(value, b"\x80\x02](" + text("11") + b"e.", STORAGES[:1], system=system)

    document = read(file)

    assert_same(document.value, loaded(file), document, file)
    assert array_of(document.value["weight"], document, file).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("view", [("2", 6, 3), ("2", -1, 2), ("2", 0, -1), ("2", 0), (2, 0, 1), ["2", 0, 1], 7])
def test_a_view_that_is_not_inside_is_refused(view: Any) -> None:
    storage = Storage(torch.FloatStorage, "1", 8)
    persistent = ("storage", torch.FloatStorage, "1", "cpu", 8, view)
    value = pickle.dumps(persistent, 2)[:-1] + b"Q."
    file = legacy_file(value, ["1"], [counted(bytes(32), 8)])

    with pytest.raises(PickleError):
        read(file)
    assert read(legacy_file(object_pickle({"a": Tensor(storage, 0, (8,), (1,))}), ["1"], [counted(bytes(32), 8)]))


def test_a_tensor_that_reaches_out_of_its_view_is_refused() -> None:
    part = Storage(torch.FloatStorage, "1", 8, view=("2", 2, 3))
    file = legacy_file(object_pickle({"a": Tensor(part, 0, (4,), (1,))}), ["1"], [counted(bytes(32), 8)])

    with pytest.raises(PickleError, match="extends beyond"):
        read(file)


# Other machines


@pytest.mark.parametrize("order_of_counts", ["little", "big"])
def test_a_big_endian_machine_writes_numbers_as_little_endian(order_of_counts: str) -> None:
    values = {
        torch.FloatStorage: np.float32([1.5, -2]),
        torch.ShortStorage: np.int16([3, 4]),
        torch.ByteStorage: np.uint8([9]),
    }
    tensors, storages = {}, []
    for key, (kind, array) in enumerate(values.items()):
        tensors[f"{key}"] = Tensor(Storage(kind, f"{key}", array.size), 0, array.shape, (1,))
        storages.append(counted(array.tobytes(), array.size, order_of_counts))
    file = legacy_file(object_pickle(tensors), list(tensors), storages, is_little_endian=False)

    document = read(file)

    assert not document.is_big_endian
    assert [array_of(record, document, file).tolist() for record in document.value.values()] == [
        array.tolist() for array in values.values()
    ]
    if order_of_counts == "little":
        assert_same(document.value, loaded(file), document, file)


def test_counts_in_the_other_order_are_refused_where_the_file_says_that_it_is_little_endian() -> None:
    tensor = Tensor(Storage(torch.FloatStorage, "1", 2), 0, (2,), (1,))
    file = legacy_file(object_pickle({"a": tensor}), ["1"], [counted(bytes(8), 2, "big")])

    with pytest.raises(PickleError, match="does not have the size"):
        read(file)


@pytest.mark.parametrize("dtype", ["complex64", "uint16"])
def test_what_a_big_endian_machine_did_not_turn_round_is_refused(dtype: str) -> None:
    file = saved({"a": [torch.zeros(3).to(getattr(torch, dtype))]})
    big = file.replace(b"little_endian\x94\x88", b"little_endian\x94\x89").replace(
        b"little_endianq\x02\x88", b"little_endianq\x02\x89"
    )

    assert big != file
    assert read(file)
    with pytest.raises(UnsupportedError, match="big-endian"):
        read(big)


# Nobody honest wrote these

WEIGHT = Tensor(Storage(torch.FloatStorage, "11", 4), 0, (2, 2), (2, 1))
BIAS = Tensor(Storage(torch.DoubleStorage, "22", 2), 0, (2,), (1,))
VALUE = object_pickle({"weight": WEIGHT, "bias": BIAS})
KEYS = ["11", "22"]
STORAGES = [counted(np.arange(4, dtype=np.float32).tobytes(), 4), counted(np.arange(2.0).tobytes(), 2)]
HONEST = legacy_file(VALUE, KEYS, STORAGES)
CALL = b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R."
"""What runs a command where a pickle is loaded."""


def test_the_honest_file_that_the_others_are_made_of_is_read() -> None:
    document = read(HONEST)

    assert_same(document.value, loaded(HONEST), document, HONEST)


SYSTEM = {"protocol_version": 1001, "little_endian": True, "type_sizes": {}}
CONTRADICTIONS = {
    "another magic number": legacy_file(VALUE, KEYS, STORAGES, magic=MAGIC + 1),
    "a magic number that is a float": legacy_file(VALUE, KEYS, STORAGES, magic=float(MAGIC)),
    "another version": legacy_file(VALUE, KEYS, STORAGES, version=1002),
    "a version that is a bool": legacy_file(VALUE, KEYS, STORAGES, version=True),
    "system information that is a list": legacy_file(VALUE, KEYS, STORAGES, system=[SYSTEM]),
    "system information without an order": legacy_file(VALUE, KEYS, STORAGES, system={"protocol_version": 1001}),
    "an order that is a number": legacy_file(VALUE, KEYS, STORAGES, system=SYSTEM | {"little_endian": 0}),
    "an ordered dict": legacy_file(VALUE, KEYS, STORAGES, system=OrderedDict(SYSTEM)),
    "a storage among the plain data": legacy_file(VALUE, KEYS, STORAGES, system=b"\x80\x02X\x01\x00\x00\x001Q."),
    "keys that are a tuple": legacy_file(VALUE, tuple(KEYS), STORAGES),
    "keys that are numbers": legacy_file(VALUE, [11, 22], STORAGES),
    "keys that are a dict": legacy_file(VALUE, {"11": 1, "22": 2}, STORAGES),
    "a missing storage": legacy_file(VALUE, ["11"], STORAGES[:1]),
    "no storages": legacy_file(VALUE, [], []),
    "an unknown storage": legacy_file(VALUE, [*KEYS, "33"], [*STORAGES, counted(b"", 0)]),
    "an unknown storage instead": legacy_file(VALUE, ["11", "33"], STORAGES),
    "a storage twice": legacy_file(VALUE, ["11", "22", "11"], [*STORAGES, STORAGES[0]]),
    "storages in another order": legacy_file(VALUE, ["22", "11"], STORAGES),
    "a count that is too small": legacy_file(VALUE, KEYS, [STORAGES[0], counted(bytes(16), 1)]),
    "a count that is too large": legacy_file(VALUE, KEYS, [counted(bytes(20), 5), STORAGES[1]]),
    "a count in bytes": legacy_file(VALUE, KEYS, [counted(bytes(16), 16), STORAGES[1]]),
    "a negative count": legacy_file(VALUE, KEYS, [counted(bytes(16), -4), STORAGES[1]]),
    "a huge count": legacy_file(VALUE, KEYS, [counted(bytes(16), 2**63 - 1), STORAGES[1]]),
    "bytes at the end": HONEST + b"\0",
    "a second file at the end": HONEST + HONEST,
    "no magic number": HONEST[len(pickle.dumps(MAGIC, 2)) :],
    "nothing": b"",
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_a_file_that_contradicts_itself_is_refused(name: str) -> None:
    with pytest.raises(PickleError) as caught:
        read(CONTRADICTIONS[name])

    assert caught.value.message


@pytest.mark.parametrize("where", ["magic", "version", "system", "keys", "value"])
def test_a_call_anywhere_is_refused_and_not_made(where: str) -> None:
    parts: dict[str, Any] = {"value": VALUE, "keys": KEYS, "storages": STORAGES} | {where: CALL}

    with pytest.raises(UnsafeError, match=r"system.*Nothing was run"):
        read(legacy_file(**parts))


@pytest.mark.parametrize("where", ["magic", "version", "system", "keys"])
@pytest.mark.parametrize("call", ["collections OrderedDict", "mine Own", "torch FloatStorage"])
def test_plain_data_has_no_names_in_it(where: str, call: str) -> None:
    module, name = call.split()
    plain = {"magic": MAGIC, "version": 1001, "system": SYSTEM, "keys": KEYS}
    mentioned = b"\x80\x02c" + f"{module}\n{name}\n0".encode() + pickle.dumps(plain[where], 2)[2:]
    parts: dict[str, Any] = {"value": VALUE, "keys": KEYS, "storages": STORAGES} | {where: mentioned}

    with pytest.raises(PickleError, match="not plain data"):
        read(legacy_file(**parts))


@pytest.mark.parametrize("where", ["magic", "system", "keys"])
def test_a_scan_hears_of_names_in_plain_data(where: str) -> None:
    parts: dict[str, Any] = {"value": VALUE, "keys": KEYS, "storages": STORAGES} | {where: CALL}
    context = Context(dangerous="record", keeps_events=True)

    with pytest.raises(PickleError, match=r"os\.system|posix\.system"):
        read_legacy(MemorySource(legacy_file(**parts)), context)

    assert [event.name for event in context.events or () if event.module in {"os", "posix"}] == ["system"]


def test_a_storage_that_is_described_in_two_ways_is_refused() -> None:
    value = object_pickle({"a": WEIGHT, "b": Tensor(Storage(torch.IntStorage, "11", 4), 0, (4,), (1,))})

    with pytest.raises(PickleError, match="two descriptions"):
        read(legacy_file(value, ["11"], STORAGES[:1]))


def test_strict_reading_refuses_an_unknown_class() -> None:
    file = legacy_file(b"\x80\x02cmine\nOwn\n)R.", [], [])

    assert read(file).value.qualified_name == "mine.Own"
    with pytest.raises(UnsafeError):
        read(file, strict=True)


def test_the_class_and_source_of_a_module_are_one_reference() -> None:
    file = saved(torch.nn.Linear(2, 2))

    document = read(file)

    assert document.value.qualified_name == "torch.nn.modules.linear.Linear"
    assert type(document.value.state["_parameters"]["weight"]) is TensorRecord


@for_each("cut", range(len(HONEST)))
def test_a_file_that_is_cut_off_anywhere_is_refused(cut: int) -> None:
    with pytest.raises(PickleError):
        read(HONEST[:cut])


def test_a_broken_download_says_how_many_bytes_are_missing() -> None:
    with pytest.raises(PickleError, match=r"expected 16 bytes .*, found 9"):
        read(HONEST[:-7])


REAL = saved({"model": trained()[0].state_dict(), "optimizer": trained()[1].state_dict(), "views": views()})


def check_changed(file: bytes) -> None:
    """Refuse the file with an error of ours, or read it so that its storages are all that follows the pickles."""
    try:
        document = read(file)
    except (FormatError, RefusedError):
        return
    spans = sorted((span.start, span.stop) for span in document.spans.values())
    assert document.spans.keys() == document.storages.keys()
    assert spans[-1][1] == len(file)
    assert all(before[1] + 8 == after[0] for before, after in pairwise(spans))
    assert all(len(document.spans[key]) == storage.nbytes for key, storage in document.storages.items())


@given(st.lists(st.tuples(st.integers(0, len(REAL) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_changed_bytes_give_a_value_inside_of_the_file_or_an_error_of_ours(changes: list[tuple[int, int]]) -> None:
    file = bytearray(REAL)
    for position, value in changes:
        file[position] = value

    check_changed(bytes(file))


@given(st.integers(0, len(REAL)), st.binary(max_size=40), st.integers(0, 40))
def test_bytes_put_in_or_left_out_give_a_value_or_an_error_of_ours(
    position: int, new: bytes, n_left_out: int
) -> None:
    check_changed(REAL[:position] + new + REAL[position + n_left_out :])


# Costs


def hostile_files() -> dict[str, bytes]:
    start = legacy_file(b"", [], [])[: -len(pickle.dumps([], 2))]
    return {
        "a text of 4 GiB": start + b"\x80\x02X\xff\xff\xff\xff" + bytes(2**24),
        "bytes of 2**63": start + b"\x80\x04\x8e" + struct.pack("<Q", 2**63) + bytes(2**24),
        "a frame of 2**62": start + b"\x80\x04\x95" + struct.pack("<Q", 2**62) + bytes(2**24),
        "a memo of 2**32": start + b"\x80\x02Nr\xff\xff\xff\xff." + pickle.dumps(["x"], 2),
        "deep": start + b"\x80\x02" + b"(" * 2**17,
        "a pickle that never ends": start + b"\x80\x02" + b"N0" * 2**16,
        "a key that is doubled": start + b"\x80\x02}" + b")" + b"q\x00h\x00\x86" * 200 + b"Ns.",
        "an id that is doubled": start + b"\x80\x02)" + b"q\x00h\x00\x86" * 23 + b"Q.",
        "an id that is deep": start + b"\x80\x02)" + b"\x85" * 100_000 + b"Q.",
        "many counts": legacy_file(VALUE, [str(i) for i in range(50_000)], []),
    }


@pytest.mark.parametrize("name", hostile_files())
def test_a_hostile_file_is_refused_soon_and_in_little_memory(name: str) -> None:
    file = hostile_files()[name]

    def refused() -> None:
        with pytest.raises((FormatError, RefusedError)):
            read(file)

    started = time.thread_time()
    refused()
    seconds = time.thread_time() - started
    _, peak = with_peak(refused)

    assert seconds < 5  # 0.3 s on a quiet machine; what is hostile takes minutes
    assert peak < 4 * max(len(file), 10e6)


def test_a_pickle_that_has_no_end_in_a_huge_file_is_given_up(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(b"\x80\x04\x8e" + struct.pack("<Q", 2**40))
    os.truncate(path, 2**41)

    with pytest.raises(LimitError, match="too long"):
        read_legacy(LocalFile(str(path)), Context(limits=PickleLimits(max_nbytes=2**20)))
