"""A dask cluster of two processes on this machine, whose workers can be killed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import dask
from distributed import Client, LocalCluster


@contextmanager
def cluster() -> Iterator[Client]:
    """Give a client of two worker processes; a worker that dies is started again."""
    with (
        dask.config.set({"distributed.worker.daemon": False, "distributed.admin.tick.limit": "1m"}),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, processes=True) as workers,
        Client(workers) as client,
    ):
        yield client
