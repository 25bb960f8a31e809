"""Which tensors a format cannot hold: all of them in one error, before anything is written. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tensorkeep.arrays import TensorToWrite
from tensorkeep.dtypes import ALL_BY_NAME
from tensorkeep.errors import DtypeError, LimitError, RefusedError
from tensorkeep.exporting._format import ExportFormat
from tensorkeep.tensors.quantized import DEQUANTIZED
from tensorkeep.texts import counted, listed

_N_LISTED: Final = 20


def refuse_unfit(target: ExportFormat, dtypes: Mapping[str, str], path: str) -> None:
    """Refuse dtypes that the format lacks; takes the dtype of each tensor by its name."""
    unfit = {name: dtype for name, dtype in dtypes.items() if dtype not in target.dtypes}
    if not unfit:
        return
    by_dtype: dict[str, list[str]] = {}
    for name, dtype in unfit.items():
        by_dtype.setdefault(dtype, []).append(name)
    raise DtypeError(
        f"{target.what} cannot hold the dtype of {counted(len(unfit), 'tensor')}",
        path=path,
        tensor=next(iter(unfit)),
        expected="one of " + ", ".join(name for name in ALL_BY_NAME if name in target.dtypes),
        found="; ".join(
            f"{dtype}: {listed((f'`{name}`' for name in names), _N_LISTED)}" for dtype, names in by_dtype.items()
        ),
        hint=". ".join([
            *(text for dtype, text in target.advice.items() if dtype in by_dtype),
            _advice(target, by_dtype),
        ]),
    )


def _advice(target: ExportFormat, dtypes: Mapping[str, object]) -> str:
    wider = next((name for name in ("F32", "F16", "F64") if name in target.dtypes), None)
    can_cast = wider and all((row := ALL_BY_NAME.get(dtype)) is not None and row.is_float for dtype in dtypes)
    if wider and can_cast:
        is_exact = wider != "F16" and "F64" not in dtypes
        return f'cast="{wider.lower()}" (--cast {wider.lower()}) converts ' + (
            "floating-point tensors; it represents each of these values exactly" if is_exact else "them, rounded"
        )
    if wider and dtypes.keys() <= DEQUANTIZED.keys():
        return f'dequantize="{wider.lower()}" (--dequantize {wider.lower()}) gives their numbers'
    return "Leave them out with drop= (--drop)"


def refuse_shapes(target: ExportFormat, tensors: Mapping[str, TensorToWrite], path: str) -> None:
    """Refuse too many tensors or dimensions."""
    if target.max_tensors is not None and len(tensors) > target.max_tensors:
        raise LimitError(
            f"{target.what} cannot hold so many tensors",
            path=path,
            expected=f"at most {target.max_tensors:,}",
            found=f"{len(tensors):,}: {listed(tensors)}",
            hint="Choose with select= (--select)",
        )
    if target.max_ndim is None:
        return
    deep = [name for name, tensor in tensors.items() if len(tensor.shape) > target.max_ndim]
    if deep:
        raise LimitError(
            f"{target.what} cannot hold tensors of more than {target.max_ndim} dimensions",
            path=path,
            tensor=deep[0],
            found=listed((f"`{name}` {list(tensors[name].shape)}" for name in deep), _N_LISTED),
            hint="Leave them out with drop= (--drop)",
        )


def refuse_names(target: ExportFormat, tensors: Mapping[str, TensorToWrite], path: str) -> None:
    """Refuse names that the format cannot hold."""
    problems = {name: problem for name in tensors if (problem := target.name_problem(name)) is not None}
    if problems:
        raise RefusedError(
            f"{target.what} cannot hold the names of {counted(len(problems), 'tensor')}",
            path=path,
            tensor=next(iter(problems)),
            found=listed((f"{name!r}: {problem}" for name, problem in problems.items()), _N_LISTED, "; "),
            hint="Give them others with rename= (--rename), or leave them out with drop= (--drop)",
        )
