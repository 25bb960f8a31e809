"""Constants of torch that checkpoints name, as texts."""

from __future__ import annotations

from typing import Any

from tensorkeep.dtypes import ALL_BY_NAME, BY_TORCH, FOREIGN_DTYPES, DType
from tensorkeep.errors import PickleError, UnsupportedError
from tensorkeep.formats.pickles.values import Label, LabelKind, short_repr

_RAW_DTYPES = {"bits8": "U8", "bits1x8": "U8", "bits2x4": "U8", "bits4x2": "U8", "bits16": "U16"}
"""Dtypes that are bits without a meaning as numbers."""

_LABEL_NAMES: dict[LabelKind, tuple[str, ...]] = {
    "dtype": (
        *("float32", "float", "float64", "double", "float16", "half", "bfloat16", "uint8", "int8", "int16", "short"),
        *(
            "int32",
            "int",
            "int64",
            "long",
            "bool",
            "complex32",
            "chalf",
            "complex64",
            "cfloat",
            "complex128",
            "cdouble",
        ),
        *("uint16", "uint32", "uint64", "quint8", "qint8", "qint32", "quint4x2", "quint2x4", *_RAW_DTYPES),
        *("float8_e5m2", "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2"),
        *(f"{sign}int{bits}" for sign in ("", "u") for bits in range(1, 8)),
    ),
    "layout": ("strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "jagged", "_mkldnn"),
    "qscheme": (
        *("per_tensor_affine", "per_tensor_symmetric", "per_channel_affine", "per_channel_symmetric"),
        "per_channel_affine_float_qparams",
    ),
    "memory_format": ("contiguous_format", "channels_last", "channels_last_3d", "preserve_format"),
}
LABELS: dict[tuple[str, str], Label] = {
    ("torch", name): Label(f"torch.{name}", kind) for kind, names in _LABEL_NAMES.items() for name in names
}
"""Module and name to the text of the constant."""

LAYOUTS = {str(label): label for label in LABELS.values() if label.kind == "layout"}


def dtype_of_label(label: Any) -> DType:
    """Return the dtype of a tensor that is stored element by element."""
    if type(label) is not Label or label.kind != "dtype":
        raise PickleError("the dtype of a tensor is not a dtype", found=short_repr(label))
    name = str(label).removeprefix("torch.")
    dtype = BY_TORCH.get(name) or _BY_OTHER_NAME.get(name)
    if dtype is None:
        raise UnsupportedError("a tensor has a dtype that cannot be read", found=str(label))
    return dtype


_BY_OTHER_NAME: dict[str, DType] = {
    **{name: ALL_BY_NAME[raw] for name, raw in _RAW_DTYPES.items()},
    **{dtype.torch: dtype for dtype in FOREIGN_DTYPES if dtype.torch},
}
