"""What do the bytes mean? One folder or file per format; none knows where bytes come from or who holds tensors.

- `_sniff`: what a file really is, for error messages.
- `_lfs_pointer`: what Git LFS leaves in place of a file.
- `_chunks`: tensors in chunks, and checksums.
- `_contents`: `FileContents`, what the parse function of a format gives.
- `_searched`: `SearchedContents`, the same where single tensors can be found.
- `_strings`: `StringArray`, an array of strings.
- `_attributes`: typed data of headers as text.
- `_description`: `Description`, what headers declare about files.
- `safetensors/`: the safetensors format: 8 bytes of length, a JSON header, the tensors' bytes back to back.
- `arrow/`: Arrow's files and streams of columns.
- `npy/`: NumPy's arrays, `.npy` and `.npz`.
- `msgpack/`: Flax's nested data with arrays.
- `gguf/`: the files of llama.cpp: keys of any type, and tensors in ggml's blocks.
- `hdf5/`: HDF5 files.
- `orbax/`: the JSON files of orbax checkpoints.
- `zarr/`: arrays in chunks.
- `ocdbt/`: tensorstore's database, which holds such arrays.
- `_zstd`: Zstandard, in bounded memory.
- `keras/`: Keras's weights: HDF5 files, shards and archives.
- `archives/`: zip and tar archives, read in place and so strictly that all readers find the same members.
- `tensorflow/`: TensorFlow's checkpoints.
- `onnx/`: ONNX models.
- `openvino/`: OpenVINO's models.
- `protobuf/`: messages of Protocol Buffers, walked without a schema.
- `paddle/`: PaddlePaddle's files.
- `tensorizer/`: files of CoreWeave's tensorizer.
- `pt2/`: programs of torch.export.
- `pickles/`: PyTorch's checkpoints, which are pickles, read without importing or calling anything they name.
"""

from tensorkeep.formats._attributes import attribute_text, attribute_texts
from tensorkeep.formats._chunks import Checksum, Chunks, StoredChunk, StreamedChunks
from tensorkeep.formats._contents import FileContents, TensorPlace, UntypedTensor, WithoutElements, dense_nbytes
from tensorkeep.formats._description import Description, Digests, FileDescription
from tensorkeep.formats._lfs_pointer import LfsPointer, parse_lfs_pointer
from tensorkeep.formats._searched import Find, SearchedContents
from tensorkeep.formats._sniff import SNIFF_NBYTES, Sniffed, sniff
from tensorkeep.formats._strings import StringArray

__all__ = [
    "SNIFF_NBYTES",
    "Checksum",
    "Chunks",
    "Description",
    "Digests",
    "FileContents",
    "FileDescription",
    "Find",
    "LfsPointer",
    "SearchedContents",
    "Sniffed",
    "StoredChunk",
    "StreamedChunks",
    "StringArray",
    "TensorPlace",
    "UntypedTensor",
    "WithoutElements",
    "attribute_text",
    "attribute_texts",
    "dense_nbytes",
    "parse_lfs_pointer",
    "sniff",
]
