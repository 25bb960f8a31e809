"""Programs that torch.export saves: every dtype, shared and strided weights, constants, older forms, requests."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

import tensorkeep
from tensorkeep.errors import UnsafeError
from tensorkeep.formats.pt2._payloads import DTYPES
from tests.support.formats.archives import zipped
from tests.support.formats.exported import Model, exported, replaced, rewritten, small
from tests.support.remote.fault_server import FaultServer

from torch._export.serde import schema, serialize  # isort: skip

CONFIG = "data/weights/model_weights_config.json"


def loaded_by_torch(data: bytes) -> dict[str, torch.Tensor]:
    program = torch.export.load(io.BytesIO(data))
    return {**program.state_dict, **program.constants}


def test_dtypes_are_those_of_the_schema() -> None:
    names = {number: str(serialize.deserialize_scalar_type(number)) for number in schema.ScalarType if number}
    known = {number: f"torch.{tensorkeep.dtypes.ALL_BY_NAME[name].torch}" for number, name in DTYPES.items()}

    assert known == names


def test_all_tensors_are_those_that_torch_loads(tmp_path: Path) -> None:
    (tmp_path / "a.pt2").write_bytes(small())
    expected = loaded_by_torch(small())

    with tensorkeep.open(tmp_path / "a.pt2", framework="torch") as file:
        assert set(file) == set(expected)
        for name, tensor in expected.items():
            assert file[name].load().dtype == tensor.dtype
            assert torch.equal(file[name].load(), tensor)
            assert not tensor.ndim or torch.equal(file[name][1:2], tensor[1:2])
        assert all(torch.equal(tensor, expected[name]) for name, tensor in file.load().items())


@pytest.mark.parametrize("name", sorted(set(DTYPES.values())))
def test_each_dtype(name: str) -> None:
    dtype = getattr(torch, tensorkeep.dtypes.ALL_BY_NAME[name].torch)
    width = torch.empty(0, dtype=dtype).element_size()
    size = 2 * 3 * width
    raw = (torch.arange(size, dtype=torch.uint8) % 2 if dtype is torch.bool else torch.arange(size)).to(torch.uint8)
    number = next(number for number, other in DTYPES.items() if other == name)
    config = json.dumps({
        "config": {
            "w": {
                "path_name": "weight_0",
                "is_param": False,
                "use_pickle": False,
                "tensor_meta": {
                    "dtype": number,
                    "sizes": [{"as_int": 3}, {"as_int": 2}],
                    "strides": [{"as_int": 1}, {"as_int": 3}],
                    "storage_offset": {"as_int": 0},
                    "layout": 7,
                },
            }
        }
    })
    data = rewritten(small(), {CONFIG: config.encode(), "data/weights/weight_0": raw.numpy().tobytes()})

    with tensorkeep.open(data, framework="torch") as file:
        expected = raw.view(dtype).as_strided((3, 2), (1, 3))
        assert file["w"].dtype == name
        assert torch.equal(file["w"].load().view(torch.uint8), expected.contiguous().view(torch.uint8))


def test_tied_weights_are_stored_once(tmp_path: Path) -> None:
    (tmp_path / "a.pt2").write_bytes(small())

    done = tensorkeep.convert(tmp_path / "a.pt2", tmp_path / "a.safetensors")

    assert done.ties == {"b.weight": "a.weight"}
    assert set(done.left_out) == {"models/model.json", "data/sample_inputs/model.pt"}
    with tensorkeep.open(tmp_path / "a.safetensors") as file:
        assert file["part"].load().tolist() == list(range(10, 20))


def test_texts_beside_the_program_are_metadata() -> None:
    buffer = io.BytesIO()
    program = torch.export.export(Model({"w": torch.ones(2)}), (torch.ones(2),))
    torch.export.save(program, buffer, extra_files={"labels.txt": "cat\ndog"})

    with tensorkeep.open(buffer.getvalue()) as file:
        assert file.metadata == {"extra/labels.txt": "cat\ndog"}
        assert list(file.unknowns) == []
    with tensorkeep.open(
        rewritten(buffer.getvalue(), {"extra/labels.txt": b"\xff", "data/executorch/x": b"1"})
    ) as file:
        assert set(file.unknowns) == {"extra/labels.txt", "data/executorch/x"}


def test_several_programs_in_a_package(tmp_path: Path) -> None:
    from torch.export.pt2_archive._package import package_pt2

    program = torch.export.export(torch.nn.Linear(2, 3), (torch.ones(1, 2),))
    package_pt2(str(tmp_path / "a.pt2"), exported_programs={"first": program, "second": program})

    with tensorkeep.open(tmp_path / "a.pt2") as file:
        assert list(file) == ["first.weight", "first.bias", "second.weight", "second.bias"]


def pickled(value: Any, **more: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer, **more)
    return buffer.getvalue()


def test_pickles_of_older_versions() -> None:
    state = {"w": torch.arange(6.0).reshape(2, 3), "t": torch.arange(6).reshape(2, 3).t()}
    changes = {
        CONFIG: None,
        "data/constants/model_constants_config.json": None,
        "data/weights/model.pt": pickled(state),
        "data/constants/model.pt": pickled({"c": torch.ones(1)}),
    }
    legacy = zipped({
        "serialized_exported_program.json": b"{}",
        "serialized_state_dict.pt": pickled(state),
        "serialized_constants.pt": pickled({"c": torch.ones(1)}),
        "serialized_example_inputs.pt": pickled(((), {})),
        "version": b"8.5",
        "extra_files/a.txt": b"text",
    })
    for data in (rewritten(small(), changes), legacy):
        with tensorkeep.open(data, framework="torch") as file:
            assert {"w", "t", "c"} <= set(file)
            assert torch.equal(file["t"].load(), state["t"])
            assert torch.equal(file["w"][1], state["w"][1])


def test_a_weight_that_is_pickled_is_read_and_an_object_is_not() -> None:
    entry = '"use_pickle": false, "tensor_meta": {"dtype": 5'
    with zipfile.ZipFile(io.BytesIO(small())) as archive:
        top = archive.namelist()[0].partition("/")[0]
        names = json.loads(archive.read(f"{top}/{CONFIG}"))["config"]
    data = rewritten(
        small(),
        {
            CONFIG: replaced(entry, entry.replace("false", "true")),
            f"data/weights/{names['scalar']['path_name']}": pickled(torch.tensor(7)),
        },
    )

    with tensorkeep.open(data) as file:
        assert file["scalar"].load() == 7
    with pytest.raises(UnsafeError):
        tensorkeep.open(
            rewritten(data, {f"data/weights/{names['scalar']['path_name']}": pickled(print)}), strict=True
        )


def test_custom_objects_are_listed_and_not_built() -> None:
    config = json.dumps({"config": {"o": {"path_name": "opaque_obj_0", "is_param": False, "use_pickle": True}}})
    data = rewritten(
        small(),
        {
            "data/constants/model_constants_config.json": config.encode(),
            "data/constants/opaque_obj_0": b"cos\nsystem\n.",
        },
    )

    with tensorkeep.open(data) as file:
        assert "not built" in str(file.unknowns["o"])


def test_a_server_is_asked_a_few_times() -> None:
    tensors = {f"layers.{number}": torch.full((2000,), float(number)) for number in range(50)}
    with FaultServer({"a.pt2": exported(Model(tensors))}) as server:
        with tensorkeep.open(f"{server.url}a.pt2") as file:
            n_opening = len(server.requests)
            assert file["layers.31"][7] == 31
        assert n_opening <= 6
        assert len(server.requests) == n_opening + 1
