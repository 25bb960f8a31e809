"""`tensorkeep slice`: print or save a part of one tensor, reading only that part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

import tensorkeep
from tensorkeep.cli.inputs import (
    Dequantize,
    Engine,
    Float,
    Force,
    Index,
    KeyOptions,
    Target,
    TrustedBy,
    Variant,
    as_float,
    check_npy_path,
    parse_index_text,
    read_preview,
    tensor_names,
    write_npy,
)
from tensorkeep.cli.reports import part, plan_lines, state_of, value_text
from tensorkeep.cli.terminal import Writing, replaced_text, shape_text, show, show_text, terminal_width

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tensorkeep.kinds import Opened
    from tensorkeep.tensors import LazyTensor


_PIPED_WIDTH = 100
"""Characters per line of values if the output is not a terminal."""


def slice_tensor(
    path: Target,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The full name of a tensor.", autocompletion=tensor_names)
    ],
    index: Annotated[
        str | None,
        typer.Argument(metavar="INDEX", help="An index as in NumPy, such as '[0:4, :8]'. Everything if left out."),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="OUT.npy", help="Write the result to this file instead of printing it."
        ),
    ] = None,
    dtype: Annotated[
        Float | None,
        typer.Option(
            "--as",
            metavar="float32|float64",
            help="Convert the values. bfloat16 and narrower floats need this to be written.",
        ),
    ] = None,
    dequantize: Dequantize = None,
    force: Force = False,
    plan: Annotated[bool, typer.Option("--plan", help="Show what the read would cost; read nothing.")] = False,
    variant: Variant = None,
    engine: Engine = None,
    *,
    trust: TrustedBy = None,
    key: KeyOptions,
) -> None:
    """Show or save a part of one tensor.

    Only that part is read; if it is large, NumPy prints it with dots, and only the printed values are read. NAME may
    also be an array of strings, or in a training state a number, text or another value; it is printed whole.

    An index may hold integers, slices, ..., None, and lists of integers or of True and False; it is parsed, never
    evaluated. Put it in brackets if it starts with a minus: '[-1]'.

    A .npy file cannot hold bfloat16 or floats of a byte or less: to write those, pass --as float32, which represents
    each of their values exactly.
    """
    items = () if index is None else parse_index_text(index)
    with tensorkeep.open(path, variant=variant, engine=engine, trust=trust, key=key.keys()) as tensors:
        if name not in tensors:
            tensors.require_names()
        if name not in tensors and (index, output, dtype, plan) == (None, None, None, False):
            lines = _other_value(tensors, name)
            if lines is not None:
                show_text(lines)
                return
        numbers = tensors if dequantize is None else tensors.dequantize(dequantize)
        if plan:
            show(plan_lines(numbers.plan({name: items})))
        elif output is None:
            _print(numbers[name], items, dtype)
        else:
            _write(numbers[name], items, dtype, Writing(output, force=force), output)


def _other_value(tensors: Opened, name: str) -> list[str] | None:
    """Write an array of strings, or a value of a state that is not a tensor; None if nothing has that name."""
    if name in tensors.strings:
        return str(tensors.strings[name].load()).split("\n")
    text = value_text(state_of(tensors.describe()), name)
    return None if text is None else [text]


def _print(tensor: LazyTensor, index: Index, dtype: Float | None) -> None:
    preview = read_preview(tensor, index)
    if dtype is not None:
        preview = msgspec.structs.replace(preview, values=as_float(preview.values, dtype))
    kind = tensor.dtype if dtype is None else f"{tensor.dtype} as {dtype.value}"
    show([part(tensor.name, kind, preview.shape, tensor.shape)])
    show_text(preview.lines(terminal_width() or _PIPED_WIDTH))


def _write(tensor: LazyTensor, index: Index, dtype: Float | None, writing: Writing, path: str) -> None:
    def attempt(overwrite: bool) -> NDArray[Any]:
        check_npy_path(path, overwrite=overwrite)
        values: NDArray[Any] = tensor[index]
        if dtype is not None:
            values = as_float(values, dtype)
        write_npy(values, path)
        return values

    values = writing.run(attempt)
    what = f"{values.dtype.name} {shape_text(values.shape)}, {values.nbytes:,} bytes"
    show_text([f"wrote {path}: {what}{replaced_text(writing.replaced)}"])
