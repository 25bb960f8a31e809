"""JAX's own objects as plain data and arrays, and what jax keeps of an array beside its elements.

kind     parts                                             settings
key      data: U32, as `jax.random.key_data` gives it      impl: "threefry2x32", "rbg" or "unsafe_rbg"
array    data: a NumPy array of a dtype that files lack

An array whose dtype gives way to those it meets has the member `"weak": true`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import jax
import numpy as np

from tensorkeep.arrays._base import EncodedObject, FindClass, ObjectCodec
from tensorkeep.arrays.jax.memory import ARRAY_CLASS
from tensorkeep.arrays.jax.weak import made_weak
from tensorkeep.dtypes import BY_NUMPY
from tensorkeep.errors import DtypeError, FormatError, UnsupportedError

_WORDS: Final = {"threefry2x32": 2, "rbg": 4, "unsafe_rbg": 4}
"""Each algorithm of random keys, and the numbers in one key."""


class JaxCodec(ObjectCodec):
    """JAX's random keys, weak types, and arrays of dtypes that files lack."""

    def attributes_of(self, tensor: Any) -> dict[str, Any]:
        """Return whether the dtype is weak, as in an array made of a Python number."""
        return {"weak": True} if tensor.weak_type else {}

    def with_attributes(self, tensor: Any, attributes: Mapping[str, Any]) -> Any:
        """Make the dtype weak."""
        weak = attributes.get("weak", False)
        if type(weak) is not bool:
            raise FormatError("a tensor's `weak` is malformed", expected="true or false", found=repr(weak))
        return made_weak(tensor) if weak and _can_be_weak(tensor) else tensor

    def encode_object(self, value: Any) -> EncodedObject | None:
        """Return a random key, or an array of a dtype that files lack, as arrays and plain data."""
        if not isinstance(value, jax.Array) or isinstance(value, jax.core.Tracer):
            return None
        if jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key):
            impl = jax.random.key_impl(value)
            if impl not in _WORDS:
                return None
            return EncodedObject("jax", "key", {"data": jax.random.key_data(value)}, {"impl": impl})
        if type(value) is not ARRAY_CLASS or value.dtype.name in BY_NUMPY:
            return None
        if value.is_deleted() or not value.is_fully_addressable:
            return None
        return EncodedObject("jax", "array", {"data": np.asarray(value)}, {})

    def decode_object(
        self,
        kind: str,
        parts: Mapping[str, Any],
        settings: Mapping[str, Any],
        find_class: FindClass,  # noqa: ARG002
    ) -> Any:
        """Return the object that was encoded."""
        data = parts.get("data")
        if kind == "key":
            return _key(data, settings.get("impl"))
        if kind == "array":
            return _array(data)
        raise UnsupportedError(f"jax has no objects of kind {kind!r:.100}", hint="A later version may know it")

    def hint(self, value: Any) -> str:
        """Say what to do with an array that cannot be saved."""
        if isinstance(value, jax.core.Tracer):
            return "Save what a jitted function returns, not what it traces"
        if jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key):
            return "Save jax.random.key_data(key): its algorithm is not one of jax's own"
        if value.is_deleted():
            return "It was deleted or donated: save it before, or what the function returned for it"
        if value.dtype.name in BY_NUMPY:
            return "Save it with tensorkeep.jax.save on all processes, which hold parts of it"
        return f"Several processes cannot save {value.dtype.name} together: {_instead_of(value.dtype.name)}"

    def advice(self, value: Any) -> str | None:
        """Say what to do with a pytree that is not plain data, or an object of flax.nnx."""
        is_tree = not isinstance(value, type) and not jax.tree_util.all_leaves([value])
        return "Save tensorkeep.jax.capture(...) of it, or of all" if is_tree else None


def _instead_of(name: str) -> str:
    """Say what to save instead of an array of a dtype that files lack; it has all numbers of the array."""
    if name == "complex128":
        return "save its real and its imag in a dict"
    wider = "uint8" if name.startswith("uint") else "int8" if name.startswith("int") else "float32"
    return f"cast it to {wider}, which has all its numbers"


def _key(data: Any, impl: Any) -> Any:
    if type(impl) is not str or impl not in _WORDS:
        raise UnsupportedError(
            "a random key is of an unknown algorithm", expected=" or ".join(_WORDS), found=f"{impl!r:.100}"
        )
    if type(data) is not ARRAY_CLASS or data.dtype != np.uint32 or data.shape[-1:] != (_WORDS[impl],):
        found = f"{data.dtype} {data.shape}" if hasattr(data, "shape") else type(data).__name__
        raise FormatError(
            f"a random key of {impl} is malformed", expected=f"uint32 (..., {_WORDS[impl]})", found=found
        )
    return jax.random.wrap_key_data(data, impl=impl)


def _array(data: Any) -> Any:
    if type(data) is not np.ndarray or data.dtype.name in BY_NUMPY:
        found = str(getattr(data, "dtype", type(data).__name__))
        raise FormatError("an array of jax is malformed", expected="a dtype that files lack", found=f"{found:.100}")
    try:
        canonical = jax.dtypes.canonicalize_dtype(data.dtype)
    except TypeError:
        canonical = None
    if canonical != data.dtype:
        name = f"{data.dtype}"[:100]
        hint = 'Call jax.config.update("jax_enable_x64", True) first' if canonical is not None else None
        raise DtypeError(f"jax has no dtype for {name}", found=name, hint=hint)
    return jax.numpy.array(data)


def _can_be_weak(array: Any) -> bool:
    """Say whether jax has weak arrays of the dtype: only where Python has a number for it."""
    return bool(array.dtype.kind in "ifc")
