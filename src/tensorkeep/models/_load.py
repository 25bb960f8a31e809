"""`load_into`: a checkpoint into a model, in the memory that the model has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from torch import nn

from tensorkeep.checkpoint import open_checkpoint
from tensorkeep.errors import UnsupportedError
from tensorkeep.kinds import Opened
from tensorkeep.models._apply import apply_plan
from tensorkeep.models._coverage import Coverage, coverage_of, nbytes_of
from tensorkeep.models._hooks import names_after_hooks
from tensorkeep.models._match import Match, ShapeMismatch, mismatch_error
from tensorkeep.models._parameters import ModelState, state_of
from tensorkeep.models._plan import Plan, Target, make_plan, target_of
from tensorkeep.models._ties import TieConflict, equal_stored, tie_conflicts, tie_error
from tensorkeep.quantized import dequantize as numbers_of
from tensorkeep.tensors import LazyTensor, LazyTensors, TensorView
from tensorkeep.transport import Openable

if TYPE_CHECKING:
    from tensorkeep.encryption import KeyLike
    from tensorkeep.trust import Trust

Loadable: TypeAlias = "Openable | Mapping[str, LazyTensor]"
Renaming: TypeAlias = Mapping[str, str] | Callable[[str], str]

_N_IN_REPR: Final = 3


class LoadReport(msgspec.Struct, frozen=True):
    """What `load_into` or `load_sharded` did.

    Attributes:
        missing: Names that only the model has; these parameters kept their values.
        unexpected: Names that only the checkpoint has, and names of tied weights that were saved with other values
            than the one that was loaded.
        mismatched: Tensors whose shapes differ, which kept their values: name, shape in the model, shape in the
            checkpoint.
        left_on_meta: Names of parameters and buffers, saved ones or not, that still have no data (device meta).
        n_tensors: Tensors of the checkpoint that were loaded; tied ones count once.
        nbytes: Their size in bytes in the checkpoint.
        coverage: What became of each tensor, if it was asked for.
    """

    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    mismatched: tuple[ShapeMismatch, ...]
    left_on_meta: tuple[str, ...]
    n_tensors: int
    nbytes: int
    coverage: Coverage | None = None

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
    device_map: Mapping[str, Any] | None = None,
    assign: bool = False,
    report: bool = False,
    dequantize: Any = None,
    trust: Trust | None = None,
    key: KeyLike | Sequence[KeyLike] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> LoadReport:
    """Load a checkpoint into a model, in the memory that the model already has.

        report = load_into(model, "checkpoint")
        load_into(large, "checkpoint", assign=True)  # a model on device meta: nothing is copied

    Names, shapes and dtypes are checked before anything is written, so an error about them leaves the model
    unchanged. Bytes of the right dtype are read straight into the parameters; others are converted in small pieces.
    So hardly more memory is needed than the model has, however large it is.

    Tied weights stay tied, are written once, and need only one of their names in the checkpoint; if it has several
    with different values, they do not fit. Parameters stay the same objects, so an optimizer still has them. Hooks
    that modules registered to rename entries before loading are run; their own `_load_from_state_dict` and hooks
    that run after loading are not.

    Args:
        model: The model. Its parameters may be frozen, on any device, and of any memory layout.
        target: A directory, a shard index, a file, its bytes or a seekable file object; or an open checkpoint, file
            or view, or a dict of name to lazy tensor.
        strict: Whether to refuse names that only one side has, and tied weights that were saved with different
            values. If False, only common names are loaded, and the last of the tied weights.
        ignore_mismatched: Whether to keep the model's values of tensors whose shapes differ, instead of raising.
        key_map: Renames tensors of the checkpoint: a dict of old to new name for those that change, or a function
            from each old name to the new one. It is applied after `strip_prefix` and before `add_prefix`.
        strip_prefix: Text to remove from the start of names, such as `"module."`; other names stay as they are.
        add_prefix: Text to put before names, such as `"_orig_mod."`.
        dtype: The dtype that all floating-point parameters and buffers get, loaded or not, such as `torch.bfloat16`
            or `"bf16"`; None to keep theirs. Saved values are cast to it.
        device: The device that all parameters and buffers are moved to, loaded or not; None to keep theirs.
        device_map: Several devices instead: the device of each parameter and buffer by its name or by a module that
            it is in, such as `{"layers.0": 0, "layers.1": 1, "": "cpu"}`. Tied weights go where the first of their
            names says.
        assign: Whether to put the saved tensors themselves into the model, in the checkpoint's dtype unless `dtype`
            is given. If the file is mapped, nothing is read until it is used. Required for a model on device meta,
            whose parameters are replaced by new objects.
        report: Whether the result has a `coverage`, which says where each tensor went.
        dequantize: Dtype in which to compute the numbers of quantized tensors, such as `"bf16"`, before they are cast
            to the dtypes of their parameters; other tensors stay as they are. None takes all tensors as they are.
        trust: Whose signatures count: a `Policy`, the path of one or of a public key; see `tensorkeep.open`. If what
            is read is not what was signed, the error leaves a model that must not be used.
        key: The key of an encrypted checkpoint; see `tensorkeep.open`.
        progress: Called every few MiB with the bytes loaded so far and the total.

    Returns:
        What was loaded, and what did not fit.

    Raises:
        StateDictMismatchError: If names, shapes or tied weights do not fit (also a RuntimeError); it lists them. The
            model is unchanged.
        DtypeError: If a tensor cannot be cast to the model's dtype, such as a complex one to a real one; or `dtype`
            is not a floating-point dtype of torch.
        DeviceError: If `device_map` has no device for a parameter or buffer; the message lists them.
        TrustError: If it is not proven that this is what was signed.
        EncryptedError: If it is encrypted, and the key is missing or another one.
        UnsupportedError: If a parameter is on device meta and `assign` is False, `device` is meta or not available,
            or a parameter cannot be written to (sparse, a wrapper of others, lazy, or a copy that the model's own
            state dict makes); or `trust` or `key` is given with what is open already.
        RefusedError: If renaming gives two tensors one name.
        TensorNotFoundError: If no name has the prefix, or a name in `key_map` is not in the checkpoint.
        SourceMissingError: If there is no such checkpoint, or a shard is missing.
        FormatError: If a shard index or a header is malformed, or a part of a quantized tensor is missing.
        IntegrityError: If the checkpoint is incomplete; or damaged, which is found while it is read: the model then
            has what was read so far.
        LimitError: If new parameters do not fit on a device, or in the budget of `tensorkeep.staging`; the model is
            unchanged.
        TypeError: If `target` is a dict of anything but lazy tensors.
        TransportError: If the bytes cannot be read. The model then has what was read so far.

    Examples:
        >>> model = torch.nn.ModuleDict({"embedding": torch.nn.Embedding(1000, 64)})
        >>> load_into(model, "model.safetensors", strict=False).n_tensors
        1
    """
    with opened(target, trust, key, dequantize) as tensors:
        goal = target_of(dtype, device, device_map, model=model, assign=assign)
        fit = fitted(model, tensors, goal, key_map=key_map, strip_prefix=strip_prefix, add_prefix=add_prefix)
        plan = fit.plan
        check_match(plan.match, model, tensors.path, strict=strict, ignore_mismatched=ignore_mismatched)
        conflicts = fit.conflicts()
        if conflicts and strict:
            raise tie_error(conflicts, model, tensors.path)
        coverage = fit.coverage() if report else None
        apply_plan(plan, goal, tensors.path, progress)
    return LoadReport(
        plan.match.missing,
        (*plan.match.unexpected, *(name for name, _ in conflicts)),
        plan.match.mismatched,
        tuple(name for name, tensor in chain(model.named_parameters(), model.named_buffers()) if tensor.is_meta),
        len(plan.steps) + len(plan.extras),
        plan.nbytes,
        coverage,
    )


class Fitted(msgspec.Struct, frozen=True, eq=False):
    """A checkpoint, a model, and how one goes into the other.

    Attributes:
        model: The model.
        state: Its parameters and buffers.
        path: The checkpoint.
        tensors: Name in the model to tensor.
        originals: Name in the model to name in the checkpoint.
        plan: What a load does.
    """

    model: nn.Module
    state: ModelState
    path: str
    tensors: Mapping[str, LazyTensor]
    originals: Mapping[str, str]
    plan: Plan

    def conflicts(self) -> list[TieConflict]:
        """Find saved tensors that differ from the one that is loaded in their place."""
        sources = self.plan.match.sources[: len(self.state.storages)]  # then extra state
        tied = zip((storage.names for storage in self.state.storages), sources, strict=True)
        return list(tie_conflicts(tied, self.tensors, equal_stored))

    def coverage(self) -> Coverage:
        """Say what becomes of each tensor."""
        arrivals, unfilled = coverage_of(self.plan, self.state, self.tensors, self.originals)
        return Coverage(self.path, type(self.model).__name__, arrivals, unfilled, nbytes_of(self.state))


def fitted(
    model: nn.Module,
    tensors: LazyTensors,
    goal: Target,
    *,
    key_map: Renaming | None,
    strip_prefix: str | None,
    add_prefix: str | None,
) -> Fitted:
    """Plan a load, and change nothing."""
    state = state_of(model)
    named = renamed_tensors(tensors, key_map, strip_prefix, add_prefix)
    hooked = names_after_hooks(model, ((name, lazy.shape) for name, lazy in named.items()))
    available = {new: named[old] for new, old in hooked.items()}
    before = dict(zip(named, tensors, strict=True))
    originals = {new: before[old] for new, old in hooked.items()}
    noted = noted_names(tensors, key_map, strip_prefix, add_prefix)
    plan = make_plan(state, available, noted, goal)
    return Fitted(model, state, tensors.path, available, originals, plan)


@contextmanager
def opened(
    target: Loadable,
    trust: Trust | None = None,
    key: KeyLike | Sequence[KeyLike] | None = None,
    dequantize: Any = None,
) -> Iterator[LazyTensors]:
    """Open a target that is not open yet, and close it at the end of the block; numbers are computed on request."""
    with _opened(target, trust, key) as tensors:
        yield tensors if dequantize is None else numbers_of(tensors, dequantize)


@contextmanager
def _opened(target: Loadable, trust: Trust | None, key: KeyLike | Sequence[KeyLike] | None) -> Iterator[LazyTensors]:
    if isinstance(target, LazyTensors | Mapping):
        for name, value in (("trust", trust), ("key", key)):
            if value is not None:
                raise UnsupportedError(f"`{name}` is for what is not open yet", hint="Give it to tensorkeep.open")
    if isinstance(target, LazyTensors):
        if isinstance(target, Opened):
            target.require_names()
        yield target
    elif isinstance(target, Mapping):
        for name, lazy in target.items():
            if not isinstance(lazy, LazyTensor):
                raise TypeError(f"`{name}` is a {type(lazy).__name__}, not a lazy tensor: use model.load_state_dict")
        yield TensorView(target, path="<tensors>")
    else:
        with open_checkpoint(target, framework="torch", trust=trust, key=key) as tensors:
            tensors.require_names()
            yield tensors


def renamed_tensors(
    tensors: LazyTensors, key_map: Renaming | None, strip_prefix: str | None, add_prefix: str | None
) -> LazyTensors:
    """Return a view of tensors under the names that the model has for them."""
    if strip_prefix:
        tensors = tensors.strip_prefix(strip_prefix)
    if key_map is not None:
        tensors = tensors.rename(key_map)
    return tensors.add_prefix(add_prefix) if add_prefix else tensors


def noted_names(
    tensors: LazyTensors, key_map: Renaming | None, strip_prefix: str | None, add_prefix: str | None
) -> dict[str, str]:
    """Map names that were left out of the file as aliases to the names that were kept, as the model calls both."""

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


def check_match(match: Match, model: nn.Module, path: str, *, strict: bool, ignore_mismatched: bool) -> None:
    """Refuse a checkpoint that does not fit, as strictly as asked."""
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
