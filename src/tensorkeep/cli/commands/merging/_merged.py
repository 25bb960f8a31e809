"""What all commands that merge models do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING

import typer

import tensorkeep
from tensorkeep.cli.inputs import size_of
from tensorkeep.cli.reports import read_written
from tensorkeep.cli.terminal import Writing, show_result
from tensorkeep.errors import TensorkeepError

if TYPE_CHECKING:
    from tensorkeep.tensors import LazyTensors


def write_merged(
    merge: Callable[..., LazyTensors],
    paths: Sequence[str],
    output: str,
    *,
    select: list[str] | None = None,
    drop: list[str] | None = None,
    max_shard_size: str = "5GB",
    sha256: bool = False,
    force: bool = False,
    as_json: bool = False,
) -> None:
    """Open the models, write what a function makes of them, and report it."""
    with ExitStack() as files:
        models = [_chosen(files.enter_context(tensorkeep.open(path)), select, drop) for path in paths]
        with refusing_numbers():
            merged = merge(*models)
        write = partial(
            tensorkeep.merging.save_merged,
            merged,
            output,
            max_shard_size=size_of(max_shard_size),
            sha256=sha256,
        )
        writing = Writing(output, force=force, asks=not as_json)
        writing.run_shown("merging", write)
    show_result(read_written(output, None, writing.seconds, writing.replaced), as_json=as_json)


@contextmanager
def refusing_numbers() -> Iterator[None]:
    """Report numbers out of range as wrong usage."""
    try:
        yield
    except TensorkeepError:
        raise
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _chosen(model: LazyTensors, select: list[str] | None, drop: list[str] | None) -> LazyTensors:
    selected = model.select(*select) if select else model
    return selected.drop(*drop) if drop else selected
