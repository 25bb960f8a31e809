"""A checkpoint into a model, in the memory that the model has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any, Final, TypeAlias

import msgspec
from torch import nn

from tensorkeep.checkpoint import open_checkpoint
from tensorkeep.models._carry_out import carry_out
from tensorkeep.models._hooks import names_after_hooks
from tensorkeep.models._match import Match, ShapeMismatch, mismatch_error
from tensorkeep.models._plan import make_plan, target_of
from tensorkeep.models._slots import state_of
from tensorkeep.models._tied import TieConflict, find_outdone, outdone_error
from tensorkeep.tensors import LazyTensor, LazyTensors, TensorView
from tensorkeep.transport import Openable

Loadable: TypeAlias = "Openable | Mapping[str, LazyTensor]"
Renaming: TypeAlias = Mapping[str, str] | Callable[[str], str]

_N_IN_REPR: Final = 3


class LoadReport(msgspec.Struct, frozen=True):
    """What `load_into` did.

    Attributes:
        missing: Names that only the model has; they kept their values.
        unexpected: Names that only the checkpoint has; and those of tied weights that were saved with other numbers
            than the one that was loaded.
        mismatched: Tensors of different shapes, which kept their values: name, shape in the model, shape in the
            checkpoint.
        left_on_meta: Names of parameters and buffers, saved ones or not, that still have no data (device meta).
        n_tensors: Tensors of the checkpoint that were loaded; tied ones count once.
        nbytes: Bytes that they have in the checkpoint.
    """

    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    mismatched: tuple[ShapeMismatch, ...]
    left_on_meta: tuple[str, ...]
    n_tensors: int
    nbytes: int

    def __repr__(self) -> str:
        facts = [f"{self.n_tensors:,} tensors", f"{self.nbytes:,} bytes"]
        for kind in ("missing", "unexpected", "mismatched", "left_on_meta"):
            items = getattr(self, kind)
            if items:
                listed = [item[0] if isinstance(item, tuple) else item for item in islice(items, _N_IN_REPR)]
                more = ", …" if len(items) > len(listed) else ""
                facts.append(f"{len(items):,} {kind.replace('_', ' ')}: {', '.join(listed)}{more}")
        return f"LoadReport({'; '.join(facts)})"


def load_into(
    model: nn.Module,
    target: Loadable,
    *,
    strict: bool = True,
    ignore_mismatched: bool = False,
    key_map: Renaming | None = None,
    strip_prefix: str | None = None,
    add_prefix: str | None = None,
    dtype: Any = None,
    device: Any = None,
    assign: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> LoadReport:
    """Load a checkpoint into a model, in the memory that the model has.

    Names, shapes and dtypes are checked before anything is written: an error about any of them leaves the model as it
    was. Bytes of the right dtype are read straight into the parameters; whatever must be converted passes in small
    pieces. So hardly more memory is needed than the model has, however large it is.

    Tied weights stay tied, are written once, and need only one of their names in the checkpoint; where it has several
    with different numbers, they do not fit. Parameters stay the same objects, so an optimizer goes on with them.
    Modules' hooks that rename entries before loading take part; their own `_load_from_state_dict` and hooks after
    loading do not.

    Args:
        model: The model. Parameters may be frozen, on any device, and of any memory layout.
        target: A directory, an index, a file, its bytes or a seekable file object; or an open checkpoint, file or
            view.
        strict: Whether names that only one side has are an error, and tied weights that were saved with different
            numbers; of these the last one is loaded else.
        ignore_mismatched: Whether a tensor of another shape is left as it is, instead of being an error.
        key_map: New name by name in the checkpoint, for those that change; or a function that gives the new name of
            each. It sees names without the stripped prefix, and before the added one.
        strip_prefix: Text that names in the checkpoint lose, such as `"module."`.
        add_prefix: Text that they get, such as `"_orig_mod."`.
        dtype: What floating-point parameters and buffers are to be, loaded or not; None to keep theirs. The
            checkpoint's numbers are converted to it.
        device: Where parameters and buffers are to be, loaded or not; None to keep them where they are.
        assign: Whether the model gets the tensors themselves, in the dtype of the checkpoint unless `dtype` says
            otherwise: nothing is read before it is touched, where the file is mapped. A model on device meta needs
            it; its parameters become other objects.
        progress: Called with the bytes loaded so far and the bytes in all, every few MiB.

    Returns:
        What was loaded, and what did not fit.

    Raises:
        StateDictMismatchError: If names, shapes or tied weights do not fit (also a RuntimeError); it lists them.
        DtypeError: If a tensor cannot become what the model has, such as a complex one a real one.
        UnsupportedError: If a parameter is on device meta and `assign` is off, `device` is meta, or a parameter
            cannot be written to at all (sparse, a wrapper of others, a lazy one, or a copy that the model's own state
            dict makes).
        RefusedError: If two tensors would have one name.
        TensorNotFoundError: If no name has the prefix, or there is none of a name in `key_map`.
        SourceMissingError: If there is no such checkpoint, or a shard is missing.
        FormatError: If an index or a header is malformed.
        IntegrityError: If the checkpoint is not whole.
        TypeError: If the target is a mapping of anything but lazy tensors.
        TransportError: If the bytes cannot be read. What was read until then is in the model.
    """
    with opened(target) as tensors:
        goal = target_of(dtype, device, assign=assign)
        state = state_of(model)
        named = renamed_tensors(tensors, key_map, strip_prefix, add_prefix)
        hooked = names_after_hooks(model, ((name, lazy.shape) for name, lazy in named.items()))
        available = {new: named[old] for new, old in hooked.items()}
        noted = noted_names(tensors, key_map, strip_prefix, add_prefix)
        plan = make_plan(state, available, noted, goal)
        check_match(plan.match, model, tensors.path, strict=strict, ignore_mismatched=ignore_mismatched)
        tied = ((slot.names, source) for slot, source in zip(state.slots, plan.match.sources, strict=False))
        outdone = list(find_outdone(tied, available))
        _check_tied(outdone if strict else [], model, tensors.path)
        carry_out(plan, goal, progress)
    return LoadReport(
        plan.match.missing,
        (*plan.match.unexpected, *(name for name, _ in outdone)),
        plan.match.mismatched,
        tuple(name for name, tensor in chain(model.named_parameters(), model.named_buffers()) if tensor.is_meta),
        len(plan.steps) + len(plan.extras),
        plan.nbytes,
    )


@contextmanager
def opened(target: Loadable) -> Iterator[LazyTensors]:
    """Open what is not open yet, and close that again."""
    if isinstance(target, LazyTensors):
        yield target
    elif isinstance(target, Mapping):
        for name, lazy in target.items():
            if not isinstance(lazy, LazyTensor):
                raise TypeError(f"`{name}` is a {type(lazy).__name__}, not a lazy tensor: use model.load_state_dict")
        yield TensorView(target, path="<tensors>")
    else:
        with open_checkpoint(target, framework="torch") as tensors:
            yield tensors


def renamed_tensors(
    tensors: LazyTensors, key_map: Renaming | None, strip_prefix: str | None, add_prefix: str | None
) -> LazyTensors:
    """Return a view of tensors under other names; see `load_into`."""
    if strip_prefix:
        tensors = tensors.strip_prefix(strip_prefix)
    if key_map is not None:
        tensors = tensors.rename(key_map)
    return tensors.add_prefix(add_prefix) if add_prefix else tensors


def noted_names(
    tensors: LazyTensors, key_map: Renaming | None, strip_prefix: str | None, add_prefix: str | None
) -> dict[str, str]:
    """Return the names that were left out when the file was saved, and which was kept, as the model calls them."""

    def renamed(name: str) -> str:
        name = name.removeprefix(strip_prefix or "")
        if key_map is not None:
            name = key_map.get(name, name) if isinstance(key_map, Mapping) else key_map(name)
        return (add_prefix or "") + name

    return {
        renamed(dropped): renamed(kept)
        for dropped, kept in tensors.metadata.items()
        if kept in tensors and dropped not in tensors
    }


def _check_tied(outdone: list[TieConflict], model: nn.Module, path: str) -> None:
    if outdone:
        raise outdone_error(outdone, type(model).__name__, path)


def check_match(match: Match, model: nn.Module, path: str, *, strict: bool, ignore_mismatched: bool) -> None:
    """Refuse what does not fit."""
    names_differ = strict and (match.missing or match.unexpected)
    shapes_differ = match.mismatched and not ignore_mismatched
    if names_differ or shapes_differ:
        shown = msgspec.structs.replace(
            match,
            missing=match.missing if strict else (),
            unexpected=match.unexpected if strict else (),
            mismatched=() if ignore_mismatched else match.mismatched,
        )
        raise mismatch_error(shown, type(model).__name__, path)
