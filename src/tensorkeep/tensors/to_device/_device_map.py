"""Which device each tensor goes to, by its name. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, Final

from tensorkeep.errors import DeviceError

_N_LISTED: Final = 5


def devices_of(names: Iterable[str], device_map: Mapping[str, Any]) -> dict[str, Any]:
    """Return the device of each tensor. The longest prefix of its name decides, in whole parts; `""` is one of all.

    All tensors without a device are in one DeviceError.
    """
    _check(device_map)
    found: dict[str, Any] = {}
    holes: list[str] = []
    for name in names:
        key = _key_of(name, device_map)
        if key is None:
            holes.append(name)
        else:
            found[name] = device_map[key]
    if holes:
        listed = ", ".join(f"`{name}`" for name in islice(holes, _N_LISTED))
        raise DeviceError(
            f"the device map has no device for {len(holes):,} of the tensors",
            tensor=holes[0],
            expected="for each tensor its name, the name of a module that it is in, or '' for all others",
            found=listed + (", …" if len(holes) > _N_LISTED else ""),
        )
    return found


def _key_of(name: str, device_map: Mapping[str, Any]) -> str | None:
    key = name
    while key not in device_map:
        if not key:
            return None
        key = key.rpartition(".")[0]
    return key


def _check(device_map: Any) -> None:
    if not isinstance(device_map, Mapping) or not all(isinstance(name, str) for name in device_map):
        raise TypeError(
            f'device_map is {device_map!r:.100}: it must be a dict such as {{"model.layers.0": 0, "": "cpu"}}. '
            "accelerate.infer_auto_device_map makes one for a model"
        )
    disk = next((name for name, device in device_map.items() if device == "disk"), None)
    if disk is not None:
        which = f"`{disk}`" if disk else "all others"
        raise DeviceError(
            f"the device map leaves {which} on disk, from where tensors are not loaded",
            expected="devices of the array library",
            found="'disk'",
            hint="Load the others with only=, and open the checkpoint to read these when they are needed",
        )
