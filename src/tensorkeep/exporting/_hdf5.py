"""HDF5 files, and among them Keras's weights: a dataset for each tensor, and the metadata as attributes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tensorkeep.buffers import Buffer
from tensorkeep.errors import RefusedError
from tensorkeep.exporting._format import Content, ExportFormat, OutputFile, Plan
from tensorkeep.formats.hdf5.writing import DATASET_DTYPES, Dataset, FileLayout, lay_out, name_problem
from tensorkeep.formats.keras import write_as
from tensorkeep.transport import ByteSink

_MAX_NDIM: Final = 32
_DTYPE: Final = "dtype"
"""The attribute by which Keras says that the bytes of a dataset are bfloat16."""


def _plan(content: Content, name: str) -> Plan:
    written = write_as(content.tensors, content.metadata)
    datasets = []
    attributes = {path: dict(named) for path, named in written.attributes.items()}
    for own, tensor in content.tensors.items():
        path = written.paths[own]
        datasets.append(Dataset(path, tensor.dtype, tensor.shape, tensor.nbytes))
        attributes.setdefault(path, {}).pop(_DTYPE, None)
        if tensor.dtype.name == "BF16":
            attributes[path][_DTYPE] = tensor.dtype.numpy
    for named in written.attributes.values():
        _refuse_lossy(named)
    layout = lay_out(datasets, attributes, written.groups)

    def write(sink: ByteSink) -> None:
        sink.preallocate(layout.nbytes)
        sink.write(_buffers(content, datasets, layout))

    return Plan((OutputFile(name, write),), names=written.names)


def _refuse_lossy(attributes: Mapping[str, str]) -> None:
    """Refuse what readers of HDF5 would lose: they end names and texts at a zero byte, and need a name."""
    for key, text in attributes.items():
        if not key or "\0" in key or "\0" in text:
            raise RefusedError(
                "an HDF5 file cannot have an entry of the metadata as an attribute",
                expected="a key that is not empty, and no zero byte in key and text",
                found=f"{key!r:.100}: {text!r:.100}",
                hint="`tensorkeep edit --unset` removes it from safetensors files",
            )


def _buffers(content: Content, datasets: Sequence[Dataset], layout: FileLayout) -> Iterator[Buffer]:
    yield layout.head
    position = len(layout.head)
    for tensor, dataset, start in zip(content.tensors.values(), datasets, layout.starts, strict=True):
        if dataset.nbytes:
            yield bytes(start - position)
            position = start + dataset.nbytes
        yield from tensor.buffers()


HDF5: Final = ExportFormat(
    key="h5",
    what="an HDF5 file",
    suffixes=(".h5", ".hdf5", ".weights.h5"),
    dtypes=DATASET_DTYPES,
    plan=_plan,
    name_problem=name_problem,
    max_ndim=_MAX_NDIM,
    holds_metadata=True,
)
