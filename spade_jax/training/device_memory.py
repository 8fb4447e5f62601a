"""What the devices of this process say of their memory."""

from collections.abc import Iterable

import jax

_METRICS = {
    "device/bytes_in_use": "bytes_in_use",
    "device/peak_bytes_in_use": "peak_bytes_in_use",
    "device/bytes_limit": "bytes_limit",
}


def device_memory(devices: Iterable[jax.Device]) -> dict[str, float]:
    """Bytes in use now, at most since the process began, and at most to be had.

    Each is that of the device where it is largest. What a backend keeps no account of is left out: on a
    CPU, all of it.
    """
    accounts = [device.memory_stats() or {} for device in devices]
    return {
        metric: float(max(known))
        for metric, name in _METRICS.items()
        if (known := [account[name] for account in accounts if name in account])
    }
