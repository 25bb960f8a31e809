"""Tar archives of torch 0.1: what torch loads from them, and archives that two readers could read differently."""

from __future__ import annotations

import io
import os
import pickle
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tensorkeep.errors import (
    ArchiveError,
    FormatError,
    LimitError,
    PickleError,
    RefusedError,
    UnsafeError,
    UnsupportedError,
)
from tensorkeep.formats.pickles.containers._tar import read_tar
from tensorkeep.formats.pickles.machine._context import Context
from tensorkeep.formats.pickles.values._document import PickleDocument
from tensorkeep.transport import LocalFile, MemorySource
from tests.support.for_each import for_each
from tests.support.peak_memory import with_peak
from tests.support.pickles.record_arrays import array_of, assert_same
from tests.support.pickles.torch01_archives import (
    SYSTEM,
    Named,
    Storage,
    Tensor,
    archive,
    dumped,
    example,
    members_of,
    object_member,
    storages_member,
    tensors_member,
)


def read(file: bytes, **options: Any) -> PickleDocument:
    return read_tar(MemorySource(file, "model.pt"), Context(**options))


@pytest.fixture
def loaded(tmp_path: Path) -> Callable[[bytes], Any]:
    """Return what torch loads; it extracts the members, so it needs a real file."""

    def load(file: bytes) -> Any:
        path = tmp_path / "model.pt"
        path.write_bytes(file)
        return torch.load(path, weights_only=False)

    return load


# Honest archives


def test_what_is_read_is_what_torch_loads(loaded: Callable[[bytes], Any]) -> None:
    file = archive(example())

    document = read(file)

    assert document.form == "tar"
    assert_same(document.value, loaded(file), document, file)
    assert document.value["part"].offset == 4
    assert list(document.storages) == ["140001", "140002"]


CLASSES = {
    "Byte": np.uint8,
    "Char": np.int8,
    "Short": np.int16,
    "Int": np.int32,
    "Long": np.int64,
    "Half": np.float16,
    "Float": np.float32,
    "Double": np.float64,
}


@pytest.mark.parametrize("name", CLASSES)
def test_every_class_of_tensors(name: str, loaded: Callable[[bytes], Any]) -> None:
    data = np.arange(6).astype(CLASSES[name])
    kinds = getattr(torch, f"{name}Storage"), getattr(torch, f"{name}Tensor")
    storages = [Storage(10, kinds[0], data.tobytes(), 6)]
    tensors = [Tensor(20, 10, kinds[1], (2, 3), (3, 1)), Tensor(21, 10, kinds[1], (0,), (1,), 6)]
    file = archive(members_of([Named(20), Named(21)], storages, tensors))

    document = read(file)

    assert_same(document.value, loaded(file), document, file)


def test_tensors_of_a_device_keep_where_they_were() -> None:
    storages = [Storage(10, torch.cuda.FloatStorage, bytes(8), 2, "cuda:1")]
    tensors = [Tensor(20, 10, torch.cuda.FloatTensor, (2,), (1,))]

    document = read(archive(members_of(Named(20), storages, tensors)))

    assert document.value.storage.location == "cuda:1"


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_an_object_may_name_storages_and_their_views(loaded: Callable[[bytes], Any]) -> None:
    storages = [Storage(10, torch.FloatStorage, np.arange(4, dtype=np.float32).tobytes(), 4)]
    file = archive(members_of({"whole": Named(10), "half": Named(11)}, storages, [], views=[(11, 10, 2, 2)]))

    document = read(file)

    assert loaded(file)["half"].tolist() == [2, 3]
    assert document.value["whole"] == document.storages["10"]
    assert (document.value["half"].offset, document.value["half"].n_elements) == (2, 2)


def test_a_tensor_that_is_named_twice_is_one_record() -> None:
    members = example()
    members["pickle"] = object_member({"a": Named(1), "b": Named(1)})

    document = read(archive(members))

    assert document.value["a"] is document.value["b"]


def test_the_class_of_a_module_comes_with_its_source() -> None:
    members = example()
    reference = ("mine", "Net")
    source = b"\x80\x02(c" + "\n".join(reference).encode() + b"\nX\x06\x00\x00\x00net.pyX\x04\x00\x00\x00passtQ."
    members["pickle"] = source

    document = read(archive(members))

    assert (document.value.module, document.value.name) == reference
    with pytest.raises(UnsafeError):
        read(archive(members), strict=True)


@pytest.mark.parametrize("mtime", [1485907200, 1485907200.5])
def test_members_come_in_any_order_with_and_without_pax_records(mtime: float) -> None:
    members = example()

    document = read(archive(dict(reversed(members.items())), mtime=mtime))

    assert document.value.keys() == {"weight", "transposed", "steps", "part"}


def test_a_member_of_more_than_8_gib_has_its_size_in_pax_records(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    n_elements = 2**31
    storages = [Storage(10, torch.FloatStorage, b"", n_elements)]
    members = members_of(Named(20), storages, [Tensor(20, 10, torch.FloatTensor, (1,), (1,), n_elements - 1)])
    content = members.pop("storages")
    views = len(dumped([]))
    big = tarfile.TarInfo("storages")
    big.size = len(content) + 4 * n_elements
    with path.open("wb") as file:
        file.write(archive(members)[: _end_of(archive(members))])
        file.write(big.tobuf(tarfile.PAX_FORMAT))
        start = file.tell() + len(content) - views
        file.write(content[:-views])
        file.seek(4 * n_elements, io.SEEK_CUR)
        file.write(content[-views:])
        file.write(bytes(-file.tell() % 512 + 1024))
        file.truncate(file.tell() + -file.tell() % 10240)

    span, peak = with_peak(lambda: read_tar(LocalFile(str(path)), Context()).spans["10"])

    with tarfile.open(path) as tar:
        assert tar.getmember("storages").size == big.size
    assert (span.start, len(span)) == (start, 4 * n_elements)
    assert peak < 2**20


def _end_of(file: bytes) -> int:
    """Return where the zeros begin that end an archive."""
    with tarfile.open(fileobj=io.BytesIO(file)) as tar:
        last = tar.getmembers()[-1]
    return last.offset_data + last.size + -last.size % 512


# Members that contradict each other

DATA = np.arange(4, dtype=np.float32).tobytes()
STORAGES = [Storage(10, torch.FloatStorage, DATA, 4)]
TENSORS = [Tensor(20, 10, torch.FloatTensor, (2, 2), (2, 1))]
HONEST = members_of({"weight": Named(20)}, STORAGES, TENSORS)
CALL = b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R."


def changed(**members: bytes) -> bytes:
    return archive(HONEST | members)


def of_storages(*args: Any, **options: Any) -> bytes:
    return changed(storages=storages_member(*args, **options))


def of_tensor(**fields: Any) -> bytes:
    return changed(tensors=tensors_member([TENSORS[0]._replace(**fields)]))


CONTRADICTIONS = {
    "no system information": changed(sys_info=dumped(None)),
    "system information without an order": changed(sys_info=dumped({"protocol_version": 1000})),
    "another version": changed(sys_info=dumped(SYSTEM | {"protocol_version": 1001})),
    "bytes after the system information": changed(sys_info=dumped(SYSTEM) + b"\0"),
    "bytes after the object": changed(pickle=HONEST["pickle"] + b"N."),
    "bytes after the storages": changed(storages=HONEST["storages"] + b"\0"),
    "bytes after the tensors": changed(tensors=HONEST["tensors"] + b"\0"),
    "an empty object": changed(pickle=b""),
    "no storages": of_storages([]),
    "a missing tensor": changed(tensors=tensors_member([])),
    "another tensor": changed(pickle=object_member(Named(21))),
    "a tensor by number": changed(pickle=b"\x80\x02K\x14Q."),
    "a storage of the later form": changed(
        pickle=b"\x80\x02" + pickle.dumps(("storage", 1, "10", "cpu", 4), 2)[2:-1] + b"Q."
    ),
    "more storages than there are": of_storages(STORAGES, count=2),
    "fewer storages than there are": of_storages(STORAGES, count=0),
    "a negative number of storages": of_storages(STORAGES, count=-1),
    "a huge number of storages": of_storages(STORAGES, count=2**70),
    "a number of storages that is a bool": of_storages(STORAGES, count=True),
    "a number of storages that is a float": of_storages(STORAGES, count=1.0),
    "a huge number of tensors": changed(tensors=tensors_member(TENSORS, count=2**62)),
    "two storages with one number": of_storages(STORAGES * 2),
    "two tensors with one number": changed(tensors=tensors_member(TENSORS * 2)),
    "a tensor with the number of a storage": of_tensor(number=10),
    "a storage with a negative size": of_storages([STORAGES[0]._replace(n_elements=-4)]),
    "a storage with a huge size": of_storages([STORAGES[0]._replace(n_elements=2**63 - 1)]),
    "a storage that is too short": of_storages([STORAGES[0]._replace(data=DATA[:-4])]),
    "a storage that is too long": of_storages([STORAGES[0]._replace(data=DATA + DATA)]),
    "a storage with a text for a number": of_storages([STORAGES[0]._replace(number="10")]),
    "a storage without a location": of_storages([STORAGES[0]._replace(location=None)]),
    "a storage of a tensor's class": of_storages([STORAGES[0]._replace(kind=torch.FloatTensor)]),
    "a storage of another class": of_storages([STORAGES[0]._replace(kind=dict)]),
    "a storage of no class": of_storages([STORAGES[0]._replace(kind="FloatStorage")]),
    "views that are a tuple": of_storages(STORAGES, views=dumped(((11, 10, 0, 4),))),
    "views that are missing": of_storages(STORAGES, views=b""),
    "a view of nothing": of_storages(STORAGES, views=[(11, 12, 0, 4)]),
    "a view of itself": of_storages(STORAGES, views=[(11, 11, 0, 4)]),
    "a view of a view": of_storages(STORAGES, views=[(11, 10, 0, 4), (12, 11, 0, 4)]),
    "a view with the number of a storage": of_storages(STORAGES, views=[(10, 10, 0, 4)]),
    "a view that is too long": of_storages(STORAGES, views=[(11, 10, 1, 4)]),
    "a view with a negative offset": of_storages(STORAGES, views=[(11, 10, -1, 4)]),
    "a view with a negative size": of_storages(STORAGES, views=[(11, 10, 2, -1)]),
    "a view of three numbers": of_storages(STORAGES, views=[(11, 10, 0)]),
    "a view with a float": of_storages(STORAGES, views=[(11, 10, 0.0, 4)]),
    "a tensor without a storage": of_tensor(storage=None),
    "a tensor of an unknown storage": of_tensor(storage=11),
    "a tensor of itself": of_tensor(storage=20),
    "a tensor that reaches out": of_tensor(shape=(2, 3)),
    "a tensor that starts too late": of_tensor(offset=1),
    "a tensor with a negative extent": of_tensor(shape=(-2, 2)),
    "a tensor with a negative stride": of_tensor(strides=(-2, 1)),
    "a tensor with a negative offset": of_tensor(offset=-1),
    "a tensor whose extent overflows": of_tensor(shape=(2**61, 2), strides=(2**62, 1)),
    "a tensor of another dtype": of_tensor(kind=torch.DoubleTensor),
    "a tensor of a storage's class": of_tensor(kind=torch.FloatStorage),
    "a tensor with fewer dimensions than it says": of_tensor(ndim=3),
    "a tensor with more dimensions than it says": of_tensor(ndim=1),
}


def test_the_honest_archive_that_the_others_are_made_of_is_read(loaded: Callable[[bytes], Any]) -> None:
    file = archive(HONEST)

    document = read(file)

    assert_same(document.value, loaded(file), document, file)


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_members_that_contradict_each_other_are_refused(name: str) -> None:
    with pytest.raises(PickleError) as caught:
        read(CONTRADICTIONS[name])

    assert caught.value.message


@pytest.mark.parametrize("member", ["pickle", "storages", "tensors"])
def test_what_is_endless_to_look_at_is_not_looked_at(member: str) -> None:
    doubled = b"\x80\x02)" + b"".join(b"q%bh%b\x86" % (bytes([i]), bytes([i])) for i in range(60))

    with pytest.raises((PickleError, LimitError)):
        read(changed(**{member: doubled + (b"Q." if member == "pickle" else b".")}))


@pytest.mark.parametrize("ndim", [-1, 65, 2**31 - 1])
def test_a_number_of_dimensions_is_bounded(ndim: int) -> None:
    with pytest.raises(LimitError, match="dimensions"):
        read(of_tensor(ndim=ndim))


@pytest.mark.parametrize("member", HONEST)
def test_a_call_in_any_member_is_refused_and_not_made(member: str) -> None:
    with pytest.raises(UnsafeError, match=r"system.*Nothing was run"):
        read(changed(**{member: CALL}))


@pytest.mark.parametrize("member", ["storages", "tensors"])
def test_a_call_among_the_descriptions_is_refused(member: str) -> None:
    described = (
        dumped((10, "cpu", torch.FloatStorage)) if member == "storages" else dumped((20, 10, torch.FloatTensor))
    )
    called = b"\x80\x02cmine\nrun\n)R0" + described[2:]

    assert HONEST[member].count(described) == 1
    with pytest.raises(PickleError, match="not plain data"):
        read(changed(**{member: HONEST[member].replace(described, called)}))


def test_an_archive_of_a_big_endian_machine_is_not_guessed_at() -> None:
    with pytest.raises(UnsupportedError, match="big-endian"):
        read(changed(sys_info=dumped(SYSTEM | {"little_endian": False})))


# Archives that two readers could read differently


def tar_of(*entries: tuple[tarfile.TarInfo, bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:", format=form) as tar:
        for name, data in HONEST.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
        for member, data in entries:
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return file.getvalue()


def entry(name: str, kind: bytes = tarfile.REGTYPE, **fields: Any) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.type = kind
    for field, value in fields.items():
        setattr(member, field, value)
    return member, b""


PLAIN = tar_of()


def resummed(file: bytes, start: int = 0) -> bytes:
    """Return the archive with a true checksum in the header at a byte."""
    block = bytearray(file[start : start + 512])
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return file[:start] + bytes(block) + file[start + 512 :]


def patched(position: int, data: bytes) -> bytes:
    """Return the plain archive with another field in its first header, and a true checksum."""
    return resummed(PLAIN[:position] + data + PLAIN[position + len(data) :])


def with_records(records: bytes) -> bytes:
    """Return an archive whose first member has these pax records."""
    header = tarfile.TarInfo("././@PaxHeader")
    header.type, header.size = tarfile.XHDTYPE, len(records)
    file = header.tobuf(tarfile.USTAR_FORMAT) + records + bytes(-len(records) % 512) + PLAIN.rstrip(b"\0")
    file += bytes(-len(file) % 512 + 1024)
    return file + bytes(-len(file) % 10240)


def record(key: str, value: str) -> bytes:
    body = f" {key}={value}\n"
    return f"{len(body) + 2}{body}".encode()


def without(name: str) -> bytes:
    return archive({key: data for key, data in HONEST.items() if key != name})


AMBIGUITIES = {
    "a member too many": tar_of(entry("code")),
    "a member twice": tar_of((tarfile.TarInfo("pickle"), HONEST["pickle"])),
    "a symbolic link": tar_of(entry("storages", tarfile.SYMTYPE, linkname="/etc/passwd")),
    "a hard link": tar_of(entry("storages", tarfile.LNKTYPE, linkname="pickle")),
    "a directory": tar_of(entry("folder", tarfile.DIRTYPE)),
    "a device": tar_of(entry("device", tarfile.CHRTYPE)),
    "a pipe": tar_of(entry("pipe", tarfile.FIFOTYPE)),
    "a contiguous file": tar_of(entry("storages", tarfile.CONTTYPE)),
    "a sparse file": patched(156, b"S"),
    "a member by a path": archive({f"./{name}": data for name, data in HONEST.items()}),
    "a member above": archive(HONEST | {"../pickle": b""}),
    "a long name": tar_of(entry("x" * 120)),
    "a long name of GNU": tar_of(entry("x" * 120), form=tarfile.GNU_FORMAT),
    "headers of GNU": tar_of(form=tarfile.GNU_FORMAT),
    "a global pax header": resummed(
        with_records(record("mtime", "1"))[:156] + b"g" + with_records(record("mtime", "1"))[157:]
    ),
    "two pax headers": with_records(record("mtime", "1"))[:1024] + with_records(record("mtime", "2")),
    "pax records without a member": with_records(record("mtime", "1"))[:1024] + bytes(9216),
    "another name in pax records": with_records(record("path", "pickle")),
    "a link in pax records": with_records(record("linkpath", "pickle")),
    "a sparse map in pax records": with_records(b"22 GNU.sparse.major=1\n"),
    "another size in pax records": with_records(record("size", "123")),
    "a size that is no number": with_records(record("size", "-1")),
    "a size that is huge": with_records(record("size", "9" * 40)),
    "one key twice": with_records(record("mtime", "1") + record("mtime", "2")),
    "pax records with a wrong length": with_records(b"13 mtime=12\n\n"),
    "pax records with a length of 0": with_records(b"0 mtime=1\n"),
    "pax records with bytes left over": with_records(record("mtime", "1") + b"x"),
    "pax records that are long": with_records(record("uname", "x" * 70) * 60),
    "a wrong checksum": PLAIN[:150] + b"1" + PLAIN[151:],
    "a prefix": patched(345, b"folder"),
    "a link name": patched(157, b"x"),
    "another magic": patched(257, b"ustar  \0"),
    "a name that goes on after its end": patched(0, b"sys_info\0x"),
    "a name that is not plain": patched(0, b"sys_\xffnfo"),
    "a size in base 256": patched(124, b"\x80" + bytes(10) + b"\x76"),
    "a size with a sign": patched(124, b"-0000000164\0"),
    "a size with spaces before": patched(124, b"        164\0"),
    "a size that is empty": patched(124, bytes(12)),
    "a size beyond the end": patched(124, b"77777777777\0"),
    "padding that is not zero": patched(512 + len(HONEST["sys_info"]), b"x"),
    "bytes in the end of a header": patched(505, b"x"),
    "no end": PLAIN[: _end_of(PLAIN)],
    "one block of zeros": PLAIN[: _end_of(PLAIN) + 512],
    "bytes after the end": PLAIN[:-1] + b"x",
    "many zeros after the end": PLAIN + bytes(10240),
    "a second archive": PLAIN + PLAIN,
    "bytes before": bytes(512) + PLAIN,
    "nothing": b"",
    "only zeros": bytes(10240),
    "no tensors": without("tensors"),
    "no system information": without("sys_info"),
}


def test_the_plain_archive_that_the_others_are_made_of_is_read() -> None:
    assert read(PLAIN).value["weight"].shape == (2, 2)
    assert read(with_records(record("mtime", "1"))).value["weight"].shape == (2, 2)
    assert read(resummed(PLAIN)).value["weight"].shape == (2, 2)


@pytest.mark.parametrize("name", AMBIGUITIES)
def test_an_archive_that_could_be_read_in_two_ways_is_refused(name: str) -> None:
    with pytest.raises(ArchiveError) as caught:
        read(AMBIGUITIES[name])

    assert caught.value.message


@for_each("cut", range(0, len(archive(HONEST)), 97))
def test_an_archive_that_is_cut_off_anywhere_is_refused(cut: int) -> None:
    file = archive(HONEST)
    end = _end_of(file) + 1024

    try:
        document = read(file[:cut])
    except ArchiveError:
        assert cut < end or cut % 512
    else:
        assert cut >= end
        assert document.value["weight"].shape == (2, 2)


REAL = archive(example())
USED = _end_of(REAL)


@given(st.lists(st.tuples(st.integers(0, USED - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_a_changed_byte_gives_a_value_inside_of_the_file_or_an_error_of_ours(changes: list[tuple[int, int]]) -> None:
    file = bytearray(REAL)
    for position, value in changes:
        file[position] = value

    try:
        document = read(bytes(file))
    except (FormatError, RefusedError):
        return

    assert all(0 < span.start <= span.stop < USED for span in document.spans.values())
    assert all(len(document.spans[key]) == storage.nbytes for key, storage in document.storages.items())


@given(st.sampled_from(sorted(HONEST)), st.integers(0, 200), st.binary(max_size=30), st.integers(0, 30))
def test_a_changed_member_gives_a_value_or_an_error_of_ours(
    name: str, position: int, new: bytes, n_left_out: int
) -> None:
    member = HONEST[name][:position] + new + HONEST[name][position + n_left_out :]
    file = changed(**{name: member})

    try:
        document = read(file)
    except (FormatError, RefusedError):
        return

    for record in document.value.values() if type(document.value) is dict else ():
        assert getattr(record, "shape", None) is None or array_of(record, document, file).shape == record.shape


def test_many_small_storages_are_read_soon() -> None:
    storages = [Storage(i, torch.FloatStorage, bytes(4), 1) for i in range(20_000)]
    file = of_storages(storages, count=20_001)

    started = time.thread_time()
    with pytest.raises(PickleError):
        read(file)
    seconds = time.thread_time() - started

    assert seconds < 4


def test_a_huge_sparse_archive_of_zeros_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(PLAIN)
    os.truncate(path, 2**40)

    with pytest.raises(ArchiveError, match="does not end"):
        read_tar(LocalFile(str(path)), Context())
