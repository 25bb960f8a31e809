"""Prints what jax loads of argv[1] where it was set up without its CPU backend, as by `JAX_PLATFORMS=cuda`."""

from __future__ import annotations

import os
import sys

os.environ["JAX_PLATFORMS"] = "elsewhere"

from jax._src import xla_bridge

import tensorkeep
from tensorkeep.arrays.jax.memory import on_host

if __name__ == "__main__":
    xla_bridge.register_backend_factory("elsewhere", xla_bridge.make_cpu_client, priority=100)
    for framework in ("jax", "flax"):
        array = tensorkeep.load(sys.argv[1], framework=framework)["a"]
        print(framework, on_host(array).tolist())
