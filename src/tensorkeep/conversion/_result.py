"""What `convert` returns."""

from __future__ import annotations

import msgspec


class Conversion(msgspec.Struct, frozen=True):
    """The result of `convert`: what was written, and what was left out.

    Attributes:
        path: The directory or file that was written.
        sources: The checkpoints that were converted.
        index: Name of the index, or None if there is none.
        files: Names of the safetensors files.
        n_tensors: Number of tensors in them.
        nbytes: Size of these tensors, in bytes.
        ties: Name to the name under which its tensor is stored: the same tensor or, with `share_views`, one that it
            is a view of. The files' metadata list them in the form of `safetensors.torch.save_model`.
        overlapped: Groups of names of tensors that overlapped in memory and are now stored separately.
        composites: Name to kind for sparse, quantized and nested tensors. Their parts are stored as tensors named
            `name.part`.
        left_out: Dotted name to the class or function of each object that is not known to be data. It also lists
            dict keys that became text (`"a key"`), tensors that were attributes of other tensors or members of sets,
            and arrays of strings, which no tensor can hold.
        has_tree: Whether `tensorkeep.load` returns the nested value that was saved. Otherwise it returns tensors by
            name, because only some were selected or there were several sources.
        n_values: Number of plain values, such as numbers and text, in the nested value.
        is_checked: Whether each tensor was read back and compared with its source.
        n_summed: Number of checksums in the source that its bytes were compared with.
        n_metadata: Number of entries of metadata in the new files, beside `format` and what tensorkeep adds.
    """

    path: str
    sources: tuple[str, ...]
    index: str | None
    files: tuple[str, ...]
    n_tensors: int
    nbytes: int
    ties: dict[str, str] = {}
    overlapped: tuple[tuple[str, ...], ...] = ()
    composites: dict[str, str] = {}
    left_out: dict[str, str] = {}
    has_tree: bool = False
    n_values: int = 0
    is_checked: bool = False
    n_summed: int = 0
    n_metadata: int = 0
