"""The parts of a training state: in a file of any kind, or already in memory."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from tensorkeep.checkpoint import open_checkpoint
from tensorkeep.errors import StateDictMismatchError
from tensorkeep.kinds import LoadOptions, Opened
from tensorkeep.state import Classes, encode_tree, key_text
from tensorkeep.store import CheckpointStore
from tensorkeep.texts import listed
from tensorkeep.transport import Openable

_PARTS: Final[dict[str, tuple[str, ...]]] = {
    "model": ("model_state_dict", "state_dict"),
    "optimizer": ("optimizer_state_dict",),
    "scheduler": ("scheduler_state_dict", "lr_scheduler", "lr_scheduler_state_dict"),
    "scaler": ("scaler_state_dict",),
    "rng": (),
}
"""Part of a training state to its alternative names, which apply only while the part is wanted."""

_N_LISTED: Final = 20
"""Names of parts in a message."""


def load_parts(
    source: Openable | Mapping[Any, Any],
    wanted: Collection[str],
    classes: Classes,
    *,
    framework: str | None,
    others_on: tuple[str, Any],
) -> tuple[dict[str, Any], dict[Any, Any]]:
    """Read the wanted parts of a checkpoint, and all extra data; unwanted parts are not read.

    Tensors of the parts are made by `framework`, or by the library that each was saved from. `others_on` is the
    library and the device for tensors of the extra data if the file names no library.
    """
    if isinstance(source, CheckpointStore):
        raise TypeError("restore takes one state, not a store: restore(store.load(), ...), or store.path_of(step)")
    if isinstance(source, Mapping):
        return _split(source, wanted, "<state>", framework)
    library: Any = framework or others_on[0]
    with open_checkpoint(source, framework=library) as opened:
        if not opened.loads_parts:
            return _split(opened.load_tree(), wanted, opened.path, framework)
        parts, others = _split(opened.tree, wanted, opened.path, framework)
        names = {part: _name_in(opened.tree, part) for part in parts}
        loaded = _load(opened, names.values(), classes, "cpu", framework)
        rest = _load(opened, others, classes, others_on[1], None)
        return {part: loaded[name] for part, name in names.items()}, rest


def _split(
    state: Any, wanted: Collection[str], path: str, framework: str | None
) -> tuple[dict[str, Any], dict[Any, Any]]:
    """Return the wanted parts of a state, and everything in it that is not a part of a training state."""
    if not isinstance(state, Mapping):
        raise StateDictMismatchError(
            "the checkpoint is not a training state",
            path=path,
            expected="a dict of its parts",
            found=type(state).__name__,
        )
    names = {part: _name_in(state, part) for part in wanted}
    missing = [part for part, name in names.items() if name is None]
    if missing:
        raise StateDictMismatchError(
            f"the checkpoint has no {' and no '.join(missing)}",
            path=path,
            found=listed(state, _N_LISTED) or "nothing",
            hint=_advice(missing, framework),
            missing=missing,
        )
    others = {name: value for name, value in state.items() if name not in {*names.values(), *_PARTS}}
    return {part: state[name] for part, name in names.items()}, others


def _name_in(state: Mapping[Any, Any], part: str) -> str | None:
    """Return the name of a part in a state; libraries differ in their names."""
    return next((name for name in (part, *_PARTS.get(part, ())) if name in state), None)


def _load(
    opened: Opened, names: Iterable[Any], classes: Classes, device: Any, framework: str | None
) -> dict[Any, Any]:
    paths = frozenset(map(_path_of, names))
    options = LoadOptions(
        only=paths.__contains__, classes=classes, framework=framework, device=device, uses_device=False
    )
    return dict(opened.load_state(options)) if paths else {}


def _path_of(key: Any) -> str:
    """Return the dotted name for a key of a state, which need not be text."""
    return key_text(encode_tree(key, leaf=lambda _: None, compose=lambda _: None).tree)


def _advice(missing: list[str], framework: str | None) -> str:
    if missing == ["rng"]:
        return "Pass rng=False to leave the random generators unchanged"
    if "model" in missing and framework is None:  # of torch
        return "Use load_into for a file that holds only the tensors of a model"
    if "model" in missing:
        return 'If there is only a model, call restore({"model": tensorkeep.load(path)}, model=model, rng=False)'
    return "Leave out what the checkpoint does not have"
