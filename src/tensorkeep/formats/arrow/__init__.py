"""Arrow's files and streams (`.arrow`, `.feather`): columns of numbers and tensors in batches, and tensors alone.

- `_flatbuffers`: the tables that describe everything, with their offsets checked.
- `_tables`: many tables at a time.
- `_r_metadata`: what R saves with a table.
- `_schema`: the columns and their types.
- `_messages`: the messages of a file or stream.
- `_layout`: what each batch consists of.
- `_columns`: where the elements of each column are.
- `_lz4`: the decoder of compressed buffers, by the package `lz4` if it is installed.
- `_buffers`: compressed buffers and bits, as sources of what they unpack to.
- `_strings`: columns of strings.
- `_read`: everything together.
"""

from tensorkeep.formats.arrow._buffers import BitSource, CompressedSource
from tensorkeep.formats.arrow._columns import Column, Part
from tensorkeep.formats.arrow._layout import Rows
from tensorkeep.formats.arrow._messages import CONTINUED, MAGIC, is_message
from tensorkeep.formats.arrow._r_metadata import is_plain_r
from tensorkeep.formats.arrow._read import Document, LoneTensor, read_document
from tensorkeep.formats.arrow._strings import string_array

__all__ = [
    "CONTINUED",
    "MAGIC",
    "BitSource",
    "Column",
    "CompressedSource",
    "Document",
    "LoneTensor",
    "Part",
    "Rows",
    "is_message",
    "is_plain_r",
    "read_document",
    "string_array",
]
