"""Large arrays in bare pickles stay in the file; whatever else a pickle does with long values is read as before."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorkeep
from tensorkeep import PickleLimits
from tensorkeep.errors import LimitError, PickleError, TensorkeepError, UnsafeError
from tensorkeep.formats.pickles import ArrayRecord, Payload, read_pickle
from tensorkeep.formats.pickles.containers import _outline
from tensorkeep.scanner import _scan_pickles
from tensorkeep.transport import MemorySource
from tests.support.formats.paddle_files import loaded_by_paddle, written_by_paddle
from tests.support.remote.fault_server import FaultServer

STATE = {
    "large": np.arange(60_000, dtype=np.float32).reshape(200, 300),
    "step": 3,
    "small": np.arange(5, dtype=np.int16),
    "fortran": np.asfortranarray(np.arange(40_000.0).reshape(200, 200)),
    "big-endian": np.arange(30_000, dtype=">f4"),
    "dates": np.arange(20_000).astype("M8[s]"),
}
PROTOCOLS = (3, 4, 5)
FEW_BYTES = PickleLimits(max_nbytes=2_000)


@pytest.fixture
def any_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave values of a byte or more in the file, and read a few bytes at a time."""
    monkeypatch.setattr(_outline, "MIN_PAYLOAD_NBYTES", 1)
    monkeypatch.setattr(_outline, "_FAR_NBYTES", 10)
    monkeypatch.setattr(_outline, "_AHEAD_NBYTES", (1, 50))
    monkeypatch.setattr(_scan_pickles, "OUTLINED_FROM_NBYTES", 0)


def payloads_in(data: bytes, **options: Any) -> list[Payload]:
    value: Any = read_pickle(MemorySource(data), **options).value
    arrays = [leaf for leaf in value.values() if type(leaf) is ArrayRecord]
    return [array.data for array in arrays if isinstance(array.data, Payload)]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_arrays_are_read_as_from_memory(protocol: int, tmp_path: Path) -> None:
    path = tmp_path / "state.pkl"
    path.write_bytes(pickle.dumps(STATE, protocol))

    assert len(payloads_in(path.read_bytes())) == 4
    loaded = tensorkeep.load(path)
    with tensorkeep.open(path) as file:
        for name in ("large", "small", "fortran", "big-endian"):
            assert np.array_equal(file[name].load(), STATE[name])
            assert np.array_equal(file[name][3:5], STATE[name][3:5])  # type: ignore[index]
        assert np.array_equal(file.tree["dates"], STATE["dates"])
    assert list(loaded) == list(STATE)
    assert all(np.array_equal(loaded[name], STATE[name]) for name in STATE)
    assert loaded["big-endian"].dtype.str == ">f4"
    loaded["large"][0, 0] = 7
    assert pickle.loads(path.read_bytes())["large"][0, 0] == 0


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_conversion_keeps_everything(protocol: int, tmp_path: Path) -> None:
    path = tmp_path / "state.pkl"
    path.write_bytes(pickle.dumps(STATE, protocol))

    tensorkeep.convert(path, tmp_path / "converted")

    loaded = tensorkeep.load(tmp_path / "converted")
    assert all(np.array_equal(loaded[name], STATE[name]) for name in STATE)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_limit_counts_the_rest(protocol: int) -> None:
    data = pickle.dumps({"a": STATE["large"], "b": STATE["fortran"]}, protocol)

    assert len(payloads_in(data, limits=FEW_BYTES)) == 2
    with pytest.raises(LimitError, match="too large"):
        payloads_in(pickle.dumps({"a": STATE["large"], "b": np.zeros(8_000, np.int8)}, protocol), limits=FEW_BYTES)


def test_the_error_for_protocol_2_says_what_to_do() -> None:
    with pytest.raises(LimitError, match="too large") as caught:
        payloads_in(pickle.dumps({"a": STATE["large"]}, 2), limits=FEW_BYTES)

    assert "protocol=4" in str(caught.value)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_other_long_values_are_read(protocol: int) -> None:
    blob = bytes(range(256)) * 400
    state = {"blob": blob, "again": [blob], "array": STATE["large"], "text": "é" * 70_000, "mutable": bytearray(blob)}
    data = pickle.dumps(state, protocol)

    value: Any = read_pickle(MemorySource(data)).value

    assert {name: value[name] for name in ("blob", "again", "text", "mutable")} == {
        name: state[name] for name in ("blob", "again", "text", "mutable")
    }
    assert not payloads_in(data)
    with pytest.raises((LimitError, PickleError), match=r"elements of an array|too large|bytearray"):
        payloads_in(data, limits=PickleLimits(max_nbytes=300_000))


def test_files_of_paddle_are_the_same_with_any_length(any_length: None) -> None:
    for name in ("protocol3.pdparams", "protocol4.pdparams", "optimizer.pdopt", "dense.pdtensor", "tensor.pdtensor"):
        assert tensorkeep.scan(written_by_paddle() / name).files[0].findings == ()
        with tensorkeep.open(written_by_paddle() / name) as file:
            for key, array in loaded_by_paddle(name).items():
                assert file[key].load().tobytes() == array.tobytes()


def test_parts_of_parameters_are_joined_in_the_file(any_length: None, tmp_path: Path) -> None:
    whole = np.arange(12, dtype=np.float32)
    parts = {f"w@@.{number}": whole[5 * number : 5 * number + 5] for number in range(3)}
    described = {"UnpackBigParamInfor@@": {"w": {"OriginShape": (3, 4), "slices": list(parts)}}}
    path = tmp_path / "large.pdparams"
    path.write_bytes(pickle.dumps(parts | described, 3))

    with tensorkeep.open(path) as file:
        assert np.array_equal(file["w"][1:, 1], whole.reshape(3, 4)[1:, 1])
        assert np.array_equal(file["w"].load(), whole.reshape(3, 4))
    assert np.array_equal(tensorkeep.load(path)["w"], whole.reshape(3, 4))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_file_that_is_cut_is_refused(protocol: int, any_length: None) -> None:
    data = pickle.dumps({"a": np.arange(3.0), "b": "text", "c": np.arange(2)}, protocol)
    for n_kept in range(2, len(data)):
        with pytest.raises(TensorkeepError):
            read_pickle(MemorySource(data[:n_kept]))
    with pytest.raises(PickleError, match="bytes follow"):
        read_pickle(MemorySource(data + b"\0"))


def test_changed_bytes_give_what_they_give_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    data = pickle.dumps({"a": np.arange(3.0), "b": b"blob", "c": np.arange(2), "d": "text"}, 4)
    for place in range(2, len(data)):
        for value in (0, 0x2E, 0x42, 0x8E, 0x95, 0x96, data[place] ^ 1):
            changed = MemorySource(data[:place] + bytes([value]) + data[place + 1 :])
            monkeypatch.setattr(_outline, "MIN_PAYLOAD_NBYTES", 2**16)
            expected = _read(changed)
            monkeypatch.setattr(_outline, "MIN_PAYLOAD_NBYTES", 1)
            assert _read(changed) == expected


def _read(source: MemorySource) -> str:
    """Return what a pickle holds, or that it is refused."""
    try:
        value = read_pickle(source).value
    except TensorkeepError as error:
        return type(error).__name__
    return repr(_plain(value, bytes(source.read(_outline.ByteRange(0, source.nbytes)))))


def _plain(value: Any, data: bytes) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item, data) for key, item in value.items()}
    if isinstance(value, ArrayRecord):
        elements: Any = value.data
        if isinstance(elements, Payload):
            elements = b"".join(data[span.start : span.stop] for _, span in elements.parts)
        return (value.dtype.text, value.shape, elements)
    return value


FRAME = b"\x95"


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x04" + FRAME + (12).to_bytes(8, "little") + b"B\2\0\0\0xx0N." + b"B\3\0\0\0",
        b"\x80\x04" + FRAME + (2).to_bytes(8, "little") + b"N." + b"B\2\0\0\0xx.",
        b"\x80\x04" + FRAME + (5).to_bytes(8, "little") + b"B\2\0\0\0xx.",
        b"\x80\x04" + FRAME + (3).to_bytes(8, "little") + b"B\2\0\0\0xx.",
        b"\x80\x04" + FRAME + (2**63).to_bytes(8, "little") + b"B\2\0\0\0xx.",
        b"\x80\x04B\2\0\0\0xx0B\xff\xff\xff\x7fxx.",
        b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\xffxx.",
        b"\x80\x04cbuiltins\nB\2\0\0\0",
    ],
)
def test_frames_and_lengths_that_hide_opcodes_are_refused(data: bytes, any_length: None) -> None:
    with pytest.raises(TensorkeepError):
        read_pickle(MemorySource(data))
    assert not payloads_possible(data)


def payloads_possible(data: bytes) -> bool:
    """Say whether the outline of a pickle is run to its end."""
    context = _outline.Context(dangerous="record")
    try:
        _outline.run_outline(MemorySource(data), context)
    except TensorkeepError:
        return False
    return True


def large_pickle(path: Path, after: bytes) -> None:
    """Write a pickle of more than a GiB, most of it a hole in the file: `{"w": zeros}`, and something after it."""
    data = pickle.dumps({"w": np.zeros(2**18, np.float32)}, 3)
    place = data.index(b"B" + (2**20).to_bytes(4, "little"))
    n_elements = 300 * 2**20
    head = data[:place].replace(b"J\0\0\4\0", b"J" + n_elements.to_bytes(4, "little"))
    assert head != data[:place]
    tail = data[place + 5 + 2**20 :].removesuffix(b".")
    with path.open("wb") as file:
        file.write(head + b"B" + (4 * n_elements).to_bytes(4, "little"))
        file.seek(4 * n_elements, 1)
        file.write(tail + after + b".")


def test_a_pickle_of_more_than_a_gibibyte_opens(tmp_path: Path) -> None:
    path = tmp_path / "model.pdparams"
    large_pickle(path, b"")

    report = tensorkeep.scan(path)
    assert report.files[0].verdict == "clean"
    with tensorkeep.open(path) as file:
        assert file["w"].shape == (300 * 2**20,)
        assert file["w"][-3:].tolist() == [0, 0, 0]
    assert tensorkeep.verify(path).n_tensors == 1


def test_what_follows_a_large_array_is_found(tmp_path: Path) -> None:
    path = tmp_path / "model.pdparams"
    large_pickle(path, b"cos\nsystem\nX\4\0\0\0true\x85R0")

    (finding,) = tensorkeep.scan(path).files[0].findings

    assert finding.severity == "dangerous"
    assert finding.name == "os.system"
    assert finding.offset is not None
    with path.open("rb") as file:
        file.seek(finding.offset)
        assert file.read(10) == b"cos\nsystem"
    with pytest.raises(UnsafeError, match=r"os\.system"):
        tensorkeep.open(path)


def test_on_a_server_only_what_is_needed_is_read() -> None:
    state = {f"{n}.weight": np.full(2**19, n, np.float32) for n in range(6)}
    state |= {f"{n}.bias": np.full(50, n, np.float32) for n in range(100)}
    state |= {f"{n}.norm": np.full(2**15, n, np.float32) for n in range(9)}
    with FaultServer({"m.pdparams": pickle.dumps(state, 4)}) as server:
        with tensorkeep.open(server.url + "m.pdparams") as file:
            assert len(file) == 115
            assert len(server.requests) <= 14
            before = len(server.requests)
            assert np.array_equal(file["5.weight"][1000:1010], np.full(10, 5))
            assert len(server.requests) == before + 1
        assert sum(asked.nbytes for asked in server.requests) < 4 * 2**20


def test_one_array_in_many_places_is_not_much_out_of_little(tmp_path: Path) -> None:
    elements = np.zeros(2**20, np.uint8).tobytes()
    begin = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\0\x85C\1btR"
    dtype = b"cnumpy\ndtype\n(X\2\0\0\0u1\x89\x88tR"
    state = b"(K\1J" + len(elements).to_bytes(4, "little") + b"\x85" + dtype + b"\x89%btb"
    first = begin + state % (b"B" + len(elements).to_bytes(4, "little") + elements + b"q\0")
    data = b"\x80\x03(" + first + (begin + state % b"h\0") * 30 + b"l."

    with pytest.raises(LimitError, match="copies more than it contains"):
        read_pickle(MemorySource(data))
