"""GGUF files as a kind: keys as attributes and metadata, shards as one, few requests over HTTP."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from gguf import GGMLQuantizationType

import tensorkeep
from tensorkeep.errors import FormatError, IntegrityError, SourceMissingError, UnsafeError, UnsupportedError
from tests.support.formats.crafted_gguf import crafted, entry, info
from tests.support.formats.gguf_files import random_blocks, write_gguf
from tests.support.remote.fault_server import FaultServer

ARRAYS = {
    "f32": np.arange(12, dtype=np.float32).reshape(3, 4),
    "f16": np.arange(24, dtype=np.float16).reshape(2, 3, 4),
    "f64": np.arange(5, dtype=np.float64),
    "i8": np.arange(6, dtype=np.int8).reshape(2, 3),
    "i16": np.arange(6, dtype=np.int16),
    "i32": np.arange(6, dtype=np.int32),
    "i64": np.arange(6, dtype=np.int64),
}
BLOCKS = {
    "q": (random_blocks(GGMLQuantizationType.Q4_K, 4, 2), GGMLQuantizationType.Q4_K),
    "bf16": (np.arange(6, dtype=ml_dtypes.bfloat16).view(np.uint8).reshape(1, 12), GGMLQuantizationType.BF16),
}
KEYS = {"tokenizer.ggml.tokens": ["<s>", "a", "ü"], "general.name": "Test", "floats": [0.1, float("inf")]}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_gguf(tmp_path / "m.gguf", ARRAYS, blocks=BLOCKS, keys=KEYS)
    return tmp_path / "m.gguf"


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    (tmp_path / "shards").mkdir()
    write_gguf(tmp_path / "shards" / "m.gguf", ARRAYS, keys=KEYS, split_max_tensors=3)
    return sorted((tmp_path / "shards").iterdir())


class TestOneFile:
    def test_plain_tensors_are_read_from_paths_bytes_and_servers(self, path: Path) -> None:
        with FaultServer({"m.gguf": path.read_bytes()}) as server:
            for target in (path, path.read_bytes(), f"{server.url}m.gguf"):
                with tensorkeep.open(target) as file:
                    assert list(file) == [*ARRAYS, *BLOCKS]
                    for name, array in ARRAYS.items():
                        np.testing.assert_array_equal(file[name].load(), array, strict=True)
                    assert file["bf16"].load().astype(np.float32).tolist() == [[0, 1, 2, 3, 4, 5]]
                    assert (file["q"].dtype, file["q"].shape, file["q"].nbytes) == ("Q4_K", (4, 512), 4 * 288)

    def test_keys_are_attributes_and_their_text_is_metadata(self, path: Path) -> None:
        with tensorkeep.open(path) as file:
            attributes, metadata = file.attributes, file.metadata

        assert attributes["tokenizer.ggml.tokens"] == ("<s>", "a", "ü")
        assert attributes["floats"] == (float(np.float32(0.1)), float("inf"))
        with pytest.raises(TypeError):
            attributes["new"] = 1  # type: ignore[index]
        assert metadata["general.architecture"] == "llama"
        assert metadata["tokenizer.ggml.tokens"] == '["<s>","a","ü"]'
        assert metadata["floats"] == '[0.1,"inf"]'
        record = json.loads(metadata["tensorkeep.gguf"])
        assert record["types"]["floats"] == "[f32]"
        assert record["tensors"]["q"] == ["Q4_K", [4, 512]]
        assert list(record["tensors"]) == [*ARRAYS, *BLOCKS]

    def test_other_files_have_no_attributes(self, tmp_path: Path) -> None:
        tensorkeep.save({"w": np.ones(2)}, tmp_path / "a.safetensors")

        assert tensorkeep.open(tmp_path / "a.safetensors").attributes == {}

    def test_plain_tensors_are_mapped_without_a_copy(self, tmp_path: Path) -> None:
        big = np.arange(2**20, dtype=np.float32)
        write_gguf(tmp_path / "m.gguf", {"w": big})

        loaded = tensorkeep.load(tmp_path / "m.gguf", backend="mmap")["w"]

        assert loaded.base is not None
        np.testing.assert_array_equal(loaded, big)

    def test_errors_name_the_file(self, path: Path) -> None:
        path.write_bytes(path.read_bytes()[:-100])

        with pytest.raises(FormatError, match=r"m\.gguf"):
            tensorkeep.open(path)

    def test_unknown_types_are_listed_and_refused_if_asked(self, tmp_path: Path) -> None:
        content = crafted([], [info("w", (2,), 200, 0), info("v", (2,), 0, 32)], bytes(40))
        (tmp_path / "m.gguf").write_bytes(content)

        with tensorkeep.open(tmp_path / "m.gguf") as file:
            assert list(file) == ["v"]
            assert "ggml type 200" in str(file.unknowns["w"])
        with pytest.raises(UnsafeError, match="ggml type 200"):
            tensorkeep.open(tmp_path / "m.gguf", strict=True)
        with pytest.raises(UnsafeError):
            tensorkeep.convert(tmp_path / "m.gguf", tmp_path / "a.safetensors")
        done = tensorkeep.convert(tmp_path / "m.gguf", tmp_path / "a.safetensors", drop_unknown=True)
        assert list(done.left_out) == ["w"]


class TestRequests:
    """Opening is the size and first bytes, then the header in pieces of 0.5, 1.5, 6 … MB; a slice is one more."""

    def test_a_small_header_takes_few_requests(self, path: Path) -> None:
        with FaultServer({"m.gguf": path.read_bytes()}) as server:
            with tensorkeep.open(f"{server.url}m.gguf") as file:
                n_opened = len(server.requests)
                file["f32"][1:]
            assert n_opened <= 2
            assert len(server.requests) <= n_opened + 1

    def test_a_header_of_100_000_tensors_too(self, tmp_path: Path) -> None:
        infos = [info(f"blk.{number}.ffn_down.weight", (4,), 0, 32 * number) for number in range(100_000)]
        tokens = entry("tokenizer.ggml.tokens", "array:string", [f"token{number}" for number in range(50_000)])
        content = crafted([tokens], infos, bytes(32 * 100_000))
        with FaultServer({"m.gguf": content}) as server:
            with tensorkeep.open(f"{server.url}m.gguf") as file:
                n_opened = len(server.requests)
                file["blk.99999.ffn_down.weight"][:2]
            assert len(file) == 100_000
            assert n_opened <= 4
            assert len(server.requests) <= n_opened + 1


class TestShards:
    def test_all_are_opened_from_any_of_them(self, shards: list[Path]) -> None:
        assert len(shards) == 3
        for target in (*shards, shards[0].parent):
            with tensorkeep.open(target) as file:
                assert list(file) == list(ARRAYS)
                assert list(file.sources) == [path.name for path in shards]
                assert file.shard_of("i64") == shards[2].name
                assert file.attributes["general.name"] == "Test"
                assert not [key for key in file.attributes if key.startswith("split.")]
                for name, array in file.load().items():
                    np.testing.assert_array_equal(array, ARRAYS[name])

    def test_all_are_opened_from_a_server(self, shards: list[Path]) -> None:
        with FaultServer({path.name: path.read_bytes() for path in shards}) as server:
            with tensorkeep.open(f"{server.url}{shards[1].name}") as file:
                np.testing.assert_array_equal(file["i64"].load(), ARRAYS["i64"])
            assert len(server.requests) <= 2 * len(shards) + 1

    def test_all_are_fetched_and_converted(self, shards: list[Path], tmp_path: Path) -> None:
        with FaultServer({path.name: path.read_bytes() for path in shards}) as server:
            tensorkeep.fetch(f"{server.url}{shards[0].name}", tmp_path / "fetched")
        assert sorted(path.name for path in (tmp_path / "fetched").glob("*.gguf")) == [path.name for path in shards]
        tensorkeep.convert(tmp_path / "fetched", tmp_path / "converted")
        assert tensorkeep.diff(tmp_path / "converted", shards[0]).is_equal

    def test_a_missing_one_is_an_error(self, shards: list[Path]) -> None:
        shards[1].unlink()

        for target in (shards[0], shards[0].parent):
            with pytest.raises(SourceMissingError, match=shards[1].name):
                tensorkeep.open(target)

    def test_a_missing_first_one_is_an_error(self, shards: list[Path]) -> None:
        shards[0].unlink()

        with pytest.raises(SourceMissingError, match=shards[0].name):
            tensorkeep.open(shards[0].parent)

    def test_one_without_its_path_is_an_error(self, shards: list[Path]) -> None:
        with pytest.raises(IntegrityError, match="one of 3 shards"):
            tensorkeep.open(shards[0].read_bytes())
        shards[0].rename(shards[0].with_name("first.gguf"))
        with pytest.raises(IntegrityError, match="one of 3 shards"):
            tensorkeep.open(shards[0].with_name("first.gguf"))

    def test_a_wrong_one_is_an_error(self, shards: list[Path]) -> None:
        content = shards[1].read_bytes()
        shards[1].unlink()
        shards[1].write_bytes(shards[2].read_bytes())

        with pytest.raises(IntegrityError, match=r"split\.no"):
            tensorkeep.open(shards[0])
        shards[1].write_bytes(content)
        shards[2].unlink()
        write_gguf(shards[0].parent / "m.gguf", {"other": ARRAYS["f32"]})
        (shards[0].parent / "m.gguf").rename(shards[2])
        with pytest.raises(IntegrityError, match=r"split\."):
            tensorkeep.open(shards[0])

    @pytest.mark.parametrize(
        ("second", "message"),
        [
            (_SAME := [("split.no", 1), ("split.count", 2), ("split.tensors.count", 2)], "`w` is in"),
            ([("split.no", 1), ("split.count", 3)], r"split\.count"),
            ([*_SAME[:2], ("general.file_type", 7)], "two values"),
        ],
    )
    def test_contradictions_are_errors(self, tmp_path: Path, second: list[Any], message: str) -> None:
        first = [("split.no", 0), ("split.count", 2), ("split.tensors.count", 2), ("general.file_type", 1)]
        for number, keys in enumerate((first, second), 1):
            entries = [entry(key, "u16", value) for key, value in keys]
            content = crafted(entries, [info("w", (2,), 0, 0)], bytes(8))
            (tmp_path / f"m-0000{number}-of-00002.gguf").write_bytes(content)

        with pytest.raises(IntegrityError, match=message):
            tensorkeep.open(tmp_path)

    def test_too_few_tensors_are_an_error(self, tmp_path: Path) -> None:
        for number in range(2):
            keys = {"split.no": number, "split.count": 2, "split.tensors.count": 3}
            entries = [entry(key, "u16", value) for key, value in keys.items()]
            content = crafted(entries, [info(f"w{number}", (2,), 0, 0)], bytes(8))
            (tmp_path / f"m-0000{number + 1}-of-00002.gguf").write_bytes(content)

        with pytest.raises(IntegrityError, match=r"expected 3 tensors \(split\.tensors\.count\), found 2"):
            tensorkeep.open(tmp_path)

    def test_a_file_that_only_has_the_name_of_a_shard_is_opened_alone(self, tmp_path: Path) -> None:
        write_gguf(tmp_path / "m-00001-of-00001.gguf", ARRAYS)

        assert list(tensorkeep.open(tmp_path)) == list(ARRAYS)


class TestDirectories:
    def test_the_only_model_is_opened(self, tmp_path: Path) -> None:
        write_gguf(tmp_path / "model-Q8_0.gguf", ARRAYS)
        write_gguf(tmp_path / "mmproj-model.gguf", {"other": ARRAYS["f32"]})

        assert list(tensorkeep.open(tmp_path)) == list(ARRAYS)

    def test_one_of_several_is_chosen_by_its_variant(self, tmp_path: Path) -> None:
        write_gguf(tmp_path / "model-Q8_0.gguf", ARRAYS)
        write_gguf(tmp_path / "model-Q4_K_M.gguf", {"other": ARRAYS["f32"]})

        with pytest.raises(UnsupportedError, match="several models"):
            tensorkeep.open(tmp_path)
        assert list(tensorkeep.open(tmp_path, variant="Q4_K_M")) == ["other"]

    def test_safetensors_and_pickles_come_first(self, tmp_path: Path) -> None:
        write_gguf(tmp_path / "model.gguf", ARRAYS)
        tensorkeep.save({"w": np.ones(2)}, tmp_path / "model.safetensors")

        assert list(tensorkeep.open(tmp_path)) == ["w"]
