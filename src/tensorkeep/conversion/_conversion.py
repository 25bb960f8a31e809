"""What became of what a conversion was given."""

from __future__ import annotations

import msgspec


class Conversion(msgspec.Struct, frozen=True):
    """What `convert` wrote, and what it left out.

    Attributes:
        path: The directory or file that was written.
        sources: What it was made of.
        index: Name of the index, or None where there is none.
        files: Names of the files of tensors.
        n_tensors: Tensors in them.
        nbytes: Bytes of these tensors.
        ties: Name to the tensor that is stored for it: the same one, or with `share_views` one that it is a view of.
            The metadata of the files say so too, as `safetensors.torch.save_model` says it.
        overlapped: Groups of tensors that overlapped without being the same, and share no memory any more.
        composites: Sparse, quantized and nested tensors: name to kind. Their parts are tensors of their own, called
            `name.part`.
        left_out: Dotted name to the class or function of each object that is not known to be data. Also text to
            `"a key"` of each that was a key of a dict, for which that text stands now, and names of tensors that
            stand beside another as its attribute, or in a set.
        has_tree: Whether `tensorkeep.load` gives the nested value that was saved. Otherwise it gives tensors by name:
            some of them were chosen, or come from several sources.
        n_values: Numbers, texts and other plain values that stand in it beside the tensors.
        is_checked: Whether each tensor was read back and held against what it was made of.
        n_summed: Storages whose bytes were held against the CRC-32 that their archive has, before that.
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
