"""`TensorBundle`: a checkpoint of TensorFlow as one mapping of name to lazy tensor."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, partial
from math import prod
from typing import Any, Final

import msgspec

from tensorkeep.dtypes import ALL_BY_NAME
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import FormatError, TensorNotFoundError, TransportError
from tensorkeep.formats import Description, StringArray
from tensorkeep.formats.tensorflow import (
    OBJECT_GRAPH_KEY,
    BundledTensor,
    ForeignDType,
    ObjectGraph,
    Part,
    WidenedSource,
    names_of,
    parse_object_graph,
    parse_strings,
)
from tensorkeep.kinds.base import Checks, Opened, OpenOptions, names_to_check
from tensorkeep.kinds.tensorflow._checks import checks_of
from tensorkeep.kinds.tensorflow._files import BundleFiles
from tensorkeep.kinds.tensorflow._location import BundleLocation
from tensorkeep.tensors import (
    Layout,
    LazyTensor,
    PlacedPiece,
    Region,
    StridedReader,
    TensorReader,
    assemble,
    c_strides,
)
from tensorkeep.texts import counted
from tensorkeep.transport import ByteSource

_VARIABLES: Final = "tensorflow.variables"
_DTYPES: Final = "tensorflow.dtypes"


class TensorBundle(Opened):
    """An open checkpoint of TensorFlow: a mapping of name to `LazyTensor`. No graph was run.

    The name of a variable is the path of objects that leads to it, such as `model/layer/kernel`: TensorFlow's key
    without `/.ATTRIBUTES/VARIABLE_VALUE`. Names of `tf.compat.v1` are as they were saved. A tensor is also found by
    its key, and by every other path of objects that leads to it.
    """

    def __init__(self, location: BundleLocation, files: BundleFiles, options: OpenOptions) -> None:
        self._location = location
        self._files = files
        self._options = options
        self._is_closed = False
        self._is_big_endian = files.bundle.header.is_big_endian
        self._plain: dict[str, bool] = {}
        self._readers: dict[tuple[int, ForeignDType | None, str], TensorReader] = {}
        self._keys = names_of(files.bundle.tensors)
        named = {name: files.bundle.tensors[key] for name, key in self._keys.items()}
        self._tensors = {name: tensor for name, tensor in named.items() if tensor.dtype.itemsize}
        self._others = {name: tensor for name, tensor in named.items() if not tensor.dtype.itemsize}
        self._assembled = {
            name: self._assemble(name, tensor)
            for name, tensor in self._tensors.items()
            if not tensor.is_whole and all(part.shard in files.shards for part in tensor.parts)
        }

    @property
    def path(self) -> str:
        """What TensorFlow calls the checkpoint: the directory of a SavedModel, else the beginning of the names."""
        return self._location.path

    @property
    def sources(self) -> Mapping[str, ByteSource]:
        """Path of each file below the directory to its bytes, data files first."""
        shards = {self._files.names[shard]: source for shard, source in self._files.shards.items()}
        return shards | {f"{self._location.stem}.index": self._files.index}

    @property
    def format_name(self) -> str:
        """The kind of these files, for people."""
        return "files of a TensorFlow checkpoint"

    # What was saved besides tensors

    @property
    def strings(self) -> Mapping[str, StringArray]:
        """Name to array of strings, such as vocabularies."""
        return {
            name: StringArray(tensor.shape, partial(self._strings, tensor))
            for name, tensor in self._others.items()
            if tensor.is_string and tensor.is_whole and name != OBJECT_GRAPH_KEY
        }

    @property
    def unknowns(self) -> Mapping[str, Any]:
        """Name to each resource, variant, or tensor of strings in parts, which only TensorFlow can restore."""
        return {
            name: f"a tensor of dtype {tensor.dtype.name}, which only TensorFlow restores"
            for name, tensor in self._others.items()
            if not (tensor.is_string and tensor.is_whole)
        }

    def key_of(self, name: str) -> str:
        """Return TensorFlow's key of a tensor, or of an array of strings."""
        key = self._keys.get(self._own_name(name) or name)
        if key is None:
            raise TensorNotFoundError(f"no tensor is called `{name}`", path=self.path, tensor=name)
        return key

    @property
    def variable_names(self) -> dict[str, str]:
        """Name to the name that the variable itself had, such as `dense/kernel`, where one is recorded."""
        recorded = self._objects.variables if self._objects else {}
        return {self._names[key]: own for key, own in recorded.items() if key in self._names and own}

    @property
    def has_metadata(self) -> bool:
        """Whether there is metadata."""
        return bool(self.metadata)

    @property
    def metadata(self) -> dict[str, str]:
        """Two JSON texts, if they say anything.

        `tensorflow.variables` has the names that variables themselves had, and `tensorflow.dtypes` the dtypes of
        TensorFlow that are read as others of the same bytes, both by the names here.
        """
        names = {name: own for name, own in self.variable_names.items() if own != name and name in self._tensors}
        dtypes = {
            name: tensor.dtype.name for name, tensor in self._tensors.items() if tensor.dtype.is_read_as_another
        }
        return {key: json.dumps(found) for key, found in ((_VARIABLES, names), (_DTYPES, dtypes)) if found}

    @cached_property
    def _objects(self) -> ObjectGraph | None:
        tensor = self._others.get(OBJECT_GRAPH_KEY)
        if tensor is None or not tensor.is_string or tensor.shape or not tensor.is_whole:
            return None
        try:
            return parse_object_graph(self._strings(tensor)[0])
        except FormatError as error:
            raise error.with_fields(path=self.path) from None

    def _strings(self, tensor: BundledTensor) -> list[bytes]:
        self._check_open()
        (part,) = tensor.parts
        data = bytes(self._files.shards[part.shard].read(part.span))
        return parse_strings(data, prod(tensor.shape), is_big_endian=self._is_big_endian)

    # Tensors

    def _find(self, name: str) -> LazyTensor | None:
        self._check_open()
        own = self._own_name(name)
        if own is None:
            return None
        lazy = self._assembled.get(own)
        if lazy is None:
            tensor = self._tensors[own]
            lazy = self._part(own, tensor.dtype, tensor.parts[0], self._options.framework)
        return lazy if own == name else lazy.renamed(name)

    def _pairs(self) -> Iterator[tuple[str, LazyTensor]]:
        self._check_open()
        framework = self._options.framework
        for name, tensor in self._tensors.items():
            lazy = self._assembled.get(name)  # which counts as false if it is empty
            yield name, self._part(name, tensor.dtype, tensor.parts[0], framework) if lazy is None else lazy

    def _own_name(self, name: str) -> str | None:
        """Return the name here of the tensor that has this name, this key, or a path of objects that leads to it."""
        if name in self._tensors:
            return name
        key = name if name in self._names else self._objects.find(name) if self._objects else None
        own = self._names.get(key) if key else None
        return own if own in self._tensors else None

    @cached_property
    def _names(self) -> dict[str, str]:
        """Key to name."""
        return {key: name for name, key in self._keys.items()}

    def _part(self, name: str, dtype: ForeignDType, part: Part, framework: str) -> LazyTensor:
        text = dtype.listed_as
        reader = self._reader(part.shard, dtype, framework)
        if self._is_plain(text):
            return LazyTensor(name, TensorEntry(text, part.shape, (part.start, part.stop)), reader)
        layout = Layout(part.start, c_strides(part.shape), is_big_endian=self._is_big_endian)
        return LazyTensor(
            name, TensorEntry(text, part.shape, (0, part.stop - part.start)), StridedReader(reader, layout)
        )

    def _is_plain(self, dtype: str) -> bool:
        """Say whether elements of a dtype are as in a safetensors file."""
        found = self._plain.get(dtype)
        if found is None:
            known = ALL_BY_NAME.get(dtype)
            element = Layout(0, (), is_big_endian=self._is_big_endian)
            found = self._plain[dtype] = known is None or element.is_plain(known, ())
        return found

    def _assemble(self, name: str, tensor: BundledTensor) -> LazyTensor:
        placed = []
        for part in tensor.parts:
            region = Region(part.starts, tuple(map(sum, zip(part.starts, part.shape, strict=True))))
            lazy = self._part(name, tensor.dtype, part, "numpy")
            placed.append(PlacedPiece.of(region, self._files.names.get(part.shard, ""), lazy))
        return assemble(
            name,
            tensor.dtype.listed_as,
            tensor.shape,
            placed,
            path=self.path,
            framework=self._options.framework,
            device=self._options.device,
        )

    def _reader(self, shard: int, dtype: ForeignDType, framework: str) -> TensorReader:
        """Return the reader of a data file, one for all tensors that can be loaded together."""
        key = shard, dtype if dtype.bits else None, framework
        if key not in self._readers:
            source = self._files.shards[shard]
            if dtype.bits:
                source = WidenedSource(source, dtype.bits, is_signed=dtype.listed_as == "I8")
            device = self._options.device if framework == self._options.framework else "cpu"
            self._readers[key] = TensorReader(source, 0, framework, device)
        return self._readers[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._own_name(name) is not None

    def shard_of(self, name: str) -> str:
        """Return the name of the file that holds a tensor, or its first part."""
        self[name]
        part = self._tensors[self._own_name(name) or name].parts[0]
        return self._files.names.get(part.shard, next(iter(self.sources)))

    # Verification and inspection

    def checks(self, names: Iterable[str] | None = None) -> Checks:
        """Return the CRC-32C of each tensor, or of some; without names, of strings and other values too."""
        if names is None:
            return checks_of(self._files, self._tensors, self._others, len(self))
        chosen = names_to_check(names, self, self.path)
        return checks_of(self._files, {name: self._tensors[name] for name in chosen}, {}, len(self))

    def describe(self) -> Description:
        """Return what the index says."""
        described = super().describe()
        first, *others = described.files
        first = msgspec.structs.replace(first, metadata=self.metadata if self.has_metadata else None)
        return msgspec.structs.replace(described, files=(first, *others))

    @property
    def is_replaceable(self) -> bool:
        """Whether safetensors files can hold everything in these files: no strings, no unknown values, no program."""
        return not self.strings and not self.unknowns and not self._location.is_saved_model

    def close(self) -> None:
        """Close the files. Tensors that were read stay valid; lazy ones can no longer be read."""
        self._is_closed = True
        for source in self.sources.values():
            source.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise TransportError("File is closed", path=self.path)

    def __repr__(self) -> str:
        extent = f"{counted(len(self), 'tensor')} in {counted(len(self._files.shards), 'file')}"
        return f"TensorBundle({self.path!r}, {extent}, {self.nbytes:,} bytes)"
