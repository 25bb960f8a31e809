"""CoreWeave's tensorizer (`.tensors`), versions 1 to 5: an index, and each tensor after a header with its hashes.

- `_bytes`: numbers and texts of the index and of headers.
- `_index`: `parse_tensorizer`, the index at the start of a file.
- `_header`: `read_sums`, the hashes in the headers of tensors.
"""

from tensorkeep.formats.tensorizer._header import HeaderSum, read_sums
from tensorkeep.formats.tensorizer._index import MAGIC, StoredTensor, TensorizerContents, parse_tensorizer

__all__ = ["MAGIC", "HeaderSum", "StoredTensor", "TensorizerContents", "parse_tensorizer", "read_sums"]
