"""Threads for blocking functions, which cannot be cancelled."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_Call = tuple["Future[Any]", Callable[[], Any]]


class DaemonThreads(Executor):
    """At most `size` threads. Unlike those of `ThreadPoolExecutor` they do not keep a stopping process alive."""

    def __init__(self, size: int) -> None:
        self._size, self._threads, self._idle, self._waiting = size, 0, 0, 0
        self._calls: queue.SimpleQueue[_Call] = queue.SimpleQueue()
        self._lock = threading.Lock()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        """Call a function on a thread, as soon as one is free."""
        future: Future[T] = Future()
        with self._lock:
            self._calls.put((future, lambda: fn(*args, **kwargs)))
            self._waiting += 1
            if self._waiting > self._idle and self._threads < self._size:
                self._threads += 1
                name = f"collector-{self._threads}"
                threading.Thread(target=self._work, name=name, daemon=True).start()
        return future

    def _work(self) -> None:
        while True:
            with self._lock:
                self._idle += 1
            future, call = self._calls.get()
            with self._lock:
                self._idle -= 1
                self._waiting -= 1
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001 - passed on with the result
                future.set_exception(error)
