"""Four CPU devices of jax, made when the first test module imports this: jax makes them once in a process."""

from __future__ import annotations

import jax

jax.config.update("jax_num_cpu_devices", 4)

CPUS = jax.devices("cpu")
