"""What all commands that merge models do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING

import typer

import tensorkeep
from tensorkeep.cli.inputs import Chosen, Saving, keys_of, open_any, size_of
from tensorkeep.cli.reports import read_written
from tensorkeep.cli.terminal import Writing, show_result
from tensorkeep.errors import TensorkeepError

if TYPE_CHECKING:
    from tensorkeep.tensors import LazyTensors


def write_merged(
    merge: Callable[..., LazyTensors],
    paths: Sequence[str],
    saving: Saving,
    chosen: Chosen | None = None,
) -> None:
    """Open the models, write what a function makes of them, and report it."""
    keys, encrypt = saving.key.keys(), saving.encryption.encryption()
    with ExitStack() as files:
        models = [_select(files.enter_context(open_any(path, keys)), chosen or Chosen()) for path in paths]
        with refusing_numbers():
            merged = merge(*models)
        write = partial(
            tensorkeep.merging.save_merged,
            merged,
            saving.output,
            max_shard_size=size_of(saving.max_shard_size),
            sha256=saving.sha256,
            encrypt=encrypt,
        )
        writing = Writing(saving.output, force=saving.force, asks=not saving.as_json)
        writing.run_shown("merging", write)
    written = read_written(saving.output, None, writing.seconds, writing.replaced, keys_of(encrypt))
    show_result(written, as_json=saving.as_json)


@contextmanager
def refusing_numbers() -> Iterator[None]:
    """Report numbers out of range as wrong usage."""
    try:
        yield
    except TensorkeepError:
        raise
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _select(model: LazyTensors, chosen: Chosen) -> LazyTensors:
    selected = model.select(*chosen.select) if chosen.select else model
    return selected.drop(*chosen.drop) if chosen.drop else selected
