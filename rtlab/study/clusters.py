"""What a sweep has to know of a Dask cluster; its client is looked at through the executor, and Dask not imported."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent import futures
from concurrent.futures import Executor
from typing import Any


def get_client(executor: Executor | None) -> Any:
    """The client of a Dask executor; None for another."""
    client = getattr(executor, "_client", None)
    return client if hasattr(client, "scatter") else None


def find_missing(executor: Executor) -> str:
    """What an executor asks for and no worker of its cluster has: ``a worker with gpu=1``; ``a worker`` without any.

    It is empty where one has it, and for an executor that says nothing about its workers.
    """
    client = get_client(executor)
    if client is None:
        return ""
    needs: Mapping[str, float] = getattr(executor, "_kwargs", {}).get("resources") or {}
    try:
        workers = client.scheduler_info()["workers"].values()
    except (OSError, RuntimeError, ValueError):
        # What befell the cluster, its futures say.
        return ""
    if any(all(w.get("resources", {}).get(n, 0) >= count for n, count in needs.items()) for w in workers):
        return ""
    listed = " ".join(f"{name}={count:g}" for name, count in needs.items())
    return f"a worker with {listed}" if needs else "a worker"


def is_worker_death(error: BaseException | None) -> bool:
    """Whether a task ended because workers did: its pool is broken, or several workers of a cluster were killed.

    Dask gives a task up after four deaths of workers that it waited at, whether it was to blame or not.
    """
    is_of_cluster = type(error).__name__ == "KilledWorker"
    return is_of_cluster or isinstance(error, (futures.BrokenExecutor, futures.CancelledError))
