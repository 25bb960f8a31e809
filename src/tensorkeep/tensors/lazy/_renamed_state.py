"""What files say of a state whose tensors get other names. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from tensorkeep.errors import HeaderError, RefusedError
from tensorkeep.formats.safetensors import State
from tensorkeep.state import part_libraries, renamed


def parts_in(state: State) -> Collection[str]:
    """Return the names of tensors that are parts of other objects."""
    return part_libraries(state.nodes()) if len(state.tree) else {}


def renamed_state(state: State | None, names: Mapping[str, str]) -> State | None:
    """Return what files say of a state, with its tensors under other names."""
    if state is None or not names:
        return state
    taken = next((new for new in names.values() if new in state.storages), None)
    if taken is not None:
        raise RefusedError(
            f"a tensor cannot be renamed to `{taken}`: that is the name of memory that tensors share", tensor=taken
        )
    aliases = {
        names.get(name, name): msgspec.structs.replace(alias, of=names.get(alias.of, alias.of))
        for name, alias in state.aliases.items()
    }
    tree = state.tree
    if len(tree):
        try:
            tree = msgspec.Raw(msgspec.json.encode(renamed(state.nodes(), names)))
        except UnicodeEncodeError as error:
            raise HeaderError("a name has no UTF-8 form", found=ascii(error.object)) from None
    return msgspec.structs.replace(state, aliases=aliases, tree=tree)
