"""`load` and `restore`: what was saved, as a pytree."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

from tensorkeep.checkpoint import open_checkpoint, read_consistently
from tensorkeep.collector import PausedCollector
from tensorkeep.encryption import KeyLike
from tensorkeep.errors import LimitError, UnsupportedError
from tensorkeep.jax.trees import ByName, Nested, Saved, capture, match, read_leaves, refuse_repeats
from tensorkeep.kinds import LoadOptions, Opened
from tensorkeep.parallel import Progress
from tensorkeep.transport import Backend, Openable
from tensorkeep.trust import Trust

_ALREADY_LOADED: Final = "<state>"
"""What errors call a state that is in memory."""


def load(
    source: Openable,
    *,
    like: Any = None,
    shardings: Any = None,
    strict: bool = True,
    backend: Backend = "auto",
    verify: bool = False,
    engine: str | None = None,
    progress: Progress | None = None,
    trust: Trust | None = None,
    key: KeyLike | Sequence[KeyLike] | None = None,
) -> Any:
    """Load a pytree, with the classes and static fields of a template.

        state = tensorkeep.jax.load("step-500.safetensors", like=state)
        parameters = tensorkeep.jax.load("step-500.safetensors")["params"]

    Names, shapes, dtypes and kinds of all leaves are compared with the template before any array is read, and one
    error lists everything that does not fit. Nothing in the file is imported or called: classes come from the
    template alone. `like` itself is never changed, nor are nnx modules in it; call `nnx.update(module, loaded)` to
    change a module.

    Args:
        source: A directory, an index, a file, its bytes, a seekable file object, or a URL; of any kind that
            `tensorkeep.open` opens, including checkpoints of orbax and Flax. If a file has only names, these are
            compared with the keys that lead to each leaf, joined by dots.
        like: A pytree with the structure that was saved: of arrays, or of `jax.ShapeDtypeStruct` as `jax.eval_shape`
            gives them. None gives dicts, lists and tuples as they were captured; tensors of a file that was not saved
            from JAX become JAX arrays.
        shardings: Where arrays go: one `jax.sharding.Sharding` or `jax.Device` for all, or a tree of them like the
            loaded one, in which one may cover a whole branch. None: where the template's are, otherwise on JAX's
            default device, uncommitted. Without `like`, this makes all tensors JAX arrays.
        strict: Whether to refuse leaves that only the file has. Otherwise, they are left out.
        backend: How to read local files: `"mmap"`, `"pread"` or `"auto"`; see `tensorkeep.open`.
        verify: Whether to compare what is read with its digest. Shards are compared with the digests of their blocks;
            without these, a process that reads a part of a tensor reads all of it once.
        engine: The library that reads the files instead of tensorkeep, such as `"tensorstore"` for orbax, if you
            trust them; see `tensorkeep.open`.
        progress: Called with the bytes loaded so far and the total.
        trust: Whose signatures count: a `Policy`, the path of one or of a public key; see `tensorkeep.open`.
        key: The key of an encrypted checkpoint; see `tensorkeep.open`.

    Returns:
        A tree like the template. NumPy arrays in the template come out as NumPy arrays, all others as JAX arrays.
        Where it has a number, a number or a 0-dimensional array comes out, whichever was saved.

    Raises:
        StateDictMismatchError: If something does not fit; `missing`, `unexpected` and `mismatched` have all names.
        SourceMissingError: If there is nothing at the path, or a shard is missing.
        IntegrityError: If the checkpoint is incomplete or damaged.
        EncryptedError: If it is encrypted, and the key is missing or another one.
        FormatError: If a file is malformed.
        UnsafeError: If a pickle names something that could only do harm.
        TrustError: If it is not proven that this is what was signed, or the policy does not allow the format.
        DtypeError: If JAX has no such dtype, such as one of 64 bits unless `jax_enable_x64` is on.
        LimitError: If something exceeds a bound.
        UnsupportedError: If the source cannot be opened, `shardings` has another structure than the tree, or an
            argument is invalid.
        TransportError: If a file cannot be read.
    """

    def read() -> Any:
        with open_checkpoint(
            source, framework="jax", backend=backend, verify=verify, engine=engine, trust=trust, key=key
        ) as opened:
            opened.require_names()
            return read_tree(opened, like, shardings, strict=strict, progress=progress)

    return read_consistently(source, read)


def read_tree(opened: Opened, like: Any, shardings: Any, *, strict: bool, progress: Progress | None) -> Any:
    """Read what is open as a pytree."""
    if like is None and shardings is None:
        framework = None if "jax" in opened.libraries else "jax"
        return opened.load_state(LoadOptions(framework=framework, progress=progress))
    tree = opened.tree
    if like is None:
        refuse_repeats(tree)
    template, saved = tree if like is None else like, _saved(opened, tree)
    return _made(template, saved, shardings, strict=strict, path=opened.path, progress=progress)


def restore(state: Any, like: Any, *, shardings: Any = None, strict: bool = True) -> Any:
    """Turn what was captured, saved and loaded back into a pytree, with the classes and static fields of a template.

        state = tensorkeep.jax.restore(store.load("best"), like=state)

    Args:
        state: What `capture` returned, as loaded by a store or another function of tensorkeep.
        like: A pytree with the structure that was captured; see `load`.
        shardings: Where arrays go; see `load`.
        strict: Whether to refuse leaves that only `state` has.

    Returns:
        A tree like the template. Its arrays may be those in `state`.

    Raises:
        StateDictMismatchError: If something does not fit; `missing`, `unexpected` and `mismatched` have all names.
        LimitError: If the template is nested too deeply.
        UnsupportedError: If `state` is a path, or `shardings` has another structure than the tree.
    """
    if isinstance(state, str | bytes | os.PathLike):
        raise UnsupportedError(
            "restore takes what was loaded",
            found=type(state).__name__,
            hint="Use tensorkeep.jax.load(path, like=...)",
        )
    return _made(like, Nested(capture(state)), shardings, strict=strict, path=_ALREADY_LOADED)


def _saved(opened: Opened, tree: Any) -> Saved:
    return Nested(tree) if opened.has_tree else ByName(tree)


def _made(
    like: Any, saved: Saved, shardings: Any, *, strict: bool, path: str, progress: Progress | None = None
) -> Any:
    try:
        with PausedCollector():
            matched = match(like, saved, shardings=shardings, strict=strict, path=path)
            return matched.make(read_leaves(matched.leaves, progress))
    except RecursionError:
        raise LimitError("the tree is too deep for Python's stack", path=path) from None
