"""Whether tensors fit on a device."""

from __future__ import annotations

from tensorkeep.arrays import DeviceMemory
from tensorkeep.errors import LimitError
from tensorkeep.tensors.to_device._options import staging_options


def room_left(device: DeviceMemory, taken: int) -> int | None:
    """Return the bytes that a load may still use of a device, of whose budget some are taken; None if not known."""
    budget, free = staging_options().budget_of(device.name), device.free_nbytes()
    known = [room for room in (None if budget is None else budget - taken, free) if room is not None]
    return min(known) if known else None


def require_room(device: DeviceMemory, needed: int, path: str | None) -> None:
    """Refuse tensors that take more bytes than the device has, or than a load may use."""
    budget, free = staging_options().budget_of(device.name), device.free_nbytes()
    if budget is not None and needed > budget:
        raise LimitError(
            f"the tensors do not fit in the device budget of {device.name}",
            path=path,
            expected=f"at most {budget:,} bytes",
            found=f"{needed:,} bytes",
            hint="Raise device_budget, or load fewer tensors, or slices of them",
        )
    if free is not None and needed > free:
        raise LimitError(
            f"the tensors do not fit in the device's memory ({device.name})",
            path=path,
            expected=f"at most {free:,} bytes, which are free",
            found=f"{needed:,} bytes",
            hint="Load fewer tensors, or slices of them, or cast them with view.cast",
        )
