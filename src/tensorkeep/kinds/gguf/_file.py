"""`GgufFile`: an open GGUF file, or the shards of a model as one."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import cast

from tensorkeep.entries import TensorEntry
from tensorkeep.formats import Description, FileContents, FileDescription, TensorPlace
from tensorkeep.formats.gguf import GGML_TYPES_BY_NAME, GgufContents, record_texts
from tensorkeep.kinds.base import FlatFile, OpenOptions
from tensorkeep.tensors import LazyTensor
from tensorkeep.tensors.quantized import QuantizedReader
from tensorkeep.transport import ByteSource, split


class GgufFile(FlatFile):
    """An open GGUF file, or the shards of a model as one: a mapping of name to `LazyTensor`, in file order.

    `attributes` has the keys of the header in their own types, `metadata` as text. Tensors in ggml's blocks have its
    names as their dtype, such as `"Q4_K"`.
    """

    def __init__(self, form: str, source: ByteSource, contents: FileContents, options: OpenOptions) -> None:
        super().__init__(form, source, contents, options)
        self._quantized: dict[int, QuantizedReader] = {}

    @property
    def _gguf(self) -> GgufContents:
        return cast("GgufContents", self._contents)

    @property
    def sources(self) -> Mapping[str, ByteSource]:
        """Name of each file to its bytes."""
        return self._gguf.sources or super().sources

    @property
    def has_metadata(self) -> bool:
        """Whether there is metadata: always, since a header has a version."""
        return True

    @cached_property
    def _texts(self) -> dict[str, str]:
        contents = self._gguf
        return record_texts(
            contents.attributes,
            contents.types,
            contents.tensors,
            contents.version,
            is_big_endian=contents.is_big_endian,
        )

    @property
    def metadata(self) -> dict[str, str]:
        """The keys of the header as text, and `tensorkeep.gguf` with what text leaves open; a new dict."""
        return dict(self._texts)

    def _lazy_elsewhere(self, name: str, place: TensorPlace) -> LazyTensor:
        lazy = super()._lazy_elsewhere(name, place)
        if lazy.dtype not in GGML_TYPES_BY_NAME or not GGML_TYPES_BY_NAME[lazy.dtype].is_quantized:
            return lazy
        return LazyTensor(name, lazy.entry, self._quantized_reader(place.source or self._source))

    def _quantized_reader(self, source: ByteSource) -> QuantizedReader:
        if id(source) not in self._quantized:  # one reader per source, so that its tensors are loaded together
            stored = self._reader(source)
            is_big_endian = self._gguf.is_big_endian
            self._quantized[id(source)] = QuantizedReader(stored, stored.with_framework("numpy"), is_big_endian)
        return self._quantized[id(source)]

    def shard_of(self, name: str) -> str:
        """Return the name of the file that holds a tensor."""
        self[name]
        return split((self._contents.tensors[name].source or self._source).name)[1]

    def describe(self) -> Description:
        """Return the contents of the headers, for `tensorkeep inspect`."""
        entries: dict[str, dict[str, TensorEntry]] = {file: {} for file in self.sources}
        for name, lazy in self.items():
            entries[self.shard_of(name)][name] = TensorEntry(lazy.dtype, lazy.shape, (0, lazy.nbytes))
        files = [
            FileDescription(
                file,
                source.nbytes,
                0,
                entries[file],
                self.metadata if source is self._source else None,
                form=self.format_name,
            )
            for file, source in self.sources.items()
        ]
        return Description(tuple(files), None if len(files) == 1 else split(self.path)[1])

    def close(self) -> None:
        """Close the files. Tensors that were read stay valid; lazy ones can no longer be read."""
        super().close()
        for reader in self._quantized.values():
            reader.in_numpy.close()
        for source in self.sources.values():
            source.close()
