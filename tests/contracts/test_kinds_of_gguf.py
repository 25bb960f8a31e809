"""GGUF files keep the contract of kinds: alone, big-endian, and in shards."""

from __future__ import annotations

from pathlib import Path

from gguf import GGUFEndian

from tests.contracts.kind import Arrays, KindContract
from tests.support.formats.gguf_files import write_gguf


class TestGguf(KindContract):
    has_checksums = False

    def save(self, arrays: Arrays, directory: Path) -> Path:
        write_gguf(directory / "model.gguf", arrays)
        return directory / "model.gguf"


class TestBigEndianGguf(KindContract):
    has_checksums = False

    def save(self, arrays: Arrays, directory: Path) -> Path:
        write_gguf(directory / "model.gguf", arrays, endianess=GGUFEndian.BIG)
        return directory / "model.gguf"


class TestShardsOfGguf(KindContract):
    has_checksums = False

    def save(self, arrays: Arrays, directory: Path) -> Path:
        write_gguf(directory / "model.gguf", arrays, split_max_tensors=2)
        return directory / "model-00002-of-00002.gguf"


class TestDirectoriesOfGguf(KindContract):
    has_checksums = False

    def save(self, arrays: Arrays, directory: Path) -> Path:
        write_gguf(directory / "model.gguf", arrays, split_max_tensors=1)
        return directory
