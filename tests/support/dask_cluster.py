"""A dask cluster of two processes on this machine, whose workers can be killed."""

from __future__ import annotations

import copyreg
from collections.abc import Iterator
from contextlib import contextmanager

_REDUCERS = dict(copyreg.dispatch_table)

import dask  # noqa: E402
from distributed import Client, LocalCluster  # noqa: E402

copyreg.dispatch_table.clear()  # dask pickles exceptions in a way of its own, which tests of pickles must not meet
copyreg.dispatch_table.update(_REDUCERS)


@contextmanager
def cluster() -> Iterator[Client]:
    """Give a client of two worker processes; a worker that dies is started again."""
    with (
        dask.config.set({"distributed.worker.daemon": False, "distributed.admin.tick.limit": "1m"}),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, processes=True) as workers,
        Client(workers) as client,
    ):
        yield client
