"""One measurement of another task queue, in an environment of its own (see `bench/peers.py`).

python _peer_tasks.py PEER COUNT ADDRESS

It enqueues COUNT tasks that do nothing, one call each, with a payload of 200 bytes, and runs them with one worker in
this process. It prints the CPU seconds and the wall-clock seconds of both parts as JSON.
"""

import asyncio
import json
import logging
import resource
import sys
import threading
import time

PAYLOAD = {"id": "x" * 32, "data": "y" * 168}


class Stopwatch:
    """CPU seconds of this process, threads included, and wall-clock seconds."""

    def __init__(self):
        self._cpu, self._wall = self._used(), time.perf_counter()

    def stop(self):
        return {"cpu": self._used() - self._cpu, "wall": time.perf_counter() - self._wall}

    def _used(self):
        used = resource.getrusage(resource.RUSAGE_SELF)
        return used.ru_utime + used.ru_stime


class Countdown:
    """Is over when all tasks have run."""

    def __init__(self, count):
        self.count = count
        self._left, self._lock, self.over = count, threading.Lock(), threading.Event()

    def one(self):
        with self._lock:
            self._left -= 1
            if not self._left:
                self.over.set()


def in_threads(left, ask, make_worker):
    """Measure a tool whose worker runs tasks in threads."""
    watch = Stopwatch()
    for _ in range(left.count):
        ask(PAYLOAD)
    asked = watch.stop()
    worker, watch = make_worker(), Stopwatch()
    worker.start()
    left.over.wait()
    done = watch.stop()
    worker.stop()
    return asked, done


def dramatiq(count, address):
    import dramatiq
    from dramatiq.brokers.redis import RedisBroker

    broker = RedisBroker(url=address)
    dramatiq.set_broker(broker)
    left = Countdown(count)

    @dramatiq.actor
    def nothing(payload):
        left.one()

    broker.flush_all()
    # As the command `dramatiq` starts it: eight threads in a process.
    return in_threads(left, nothing.send, lambda: dramatiq.Worker(broker, worker_threads=8))


def huey(count, address):
    from huey import SqliteHuey

    queue = SqliteHuey(filename=address)
    left = Countdown(count)

    @queue.task()
    def nothing(payload):
        left.one()

    # The default: one thread.
    return in_threads(left, nothing, lambda: queue.create_consumer(workers=1, periodic=False))


def taskiq(count, address):
    from taskiq.api import run_receiver_task
    from taskiq_redis import RedisStreamBroker

    async def main():
        broker = RedisStreamBroker(url=address)
        over, left = asyncio.Event(), [count]

        @broker.task
        async def nothing(payload):
            left[0] -= 1
            if not left[0]:
                over.set()

        await broker.startup()
        watch = Stopwatch()
        for _ in range(count):
            await nothing.kiq(PAYLOAD)
        asked = watch.stop()
        watch = Stopwatch()
        running = asyncio.create_task(run_receiver_task(broker, max_async_tasks=100))
        await over.wait()
        done = watch.stop()
        running.cancel()
        return asked, done

    return asyncio.run(main())


def procrastinate(count, address):
    from procrastinate import App, PsycopgConnector

    async def main():
        app = App(connector=PsycopgConnector(conninfo=address))
        over, left = asyncio.Event(), [count]

        @app.task
        async def nothing(payload):
            left[0] -= 1
            if not left[0]:
                over.set()

        async with app.open_async():
            await app.schema_manager.apply_schema_async()
            watch = Stopwatch()
            for _ in range(count):
                await nothing.defer_async(payload=PAYLOAD)
            asked = watch.stop()
            watch = Stopwatch()
            running = asyncio.create_task(app.run_worker_async(concurrency=10, install_signal_handlers=False))
            await over.wait()
            done = watch.stop()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        return asked, done

    return asyncio.run(main())


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    peer, number, where = sys.argv[1:]
    asked, done = {"dramatiq": dramatiq, "huey": huey, "taskiq": taskiq, "procrastinate": procrastinate}[peer](
        int(number), where
    )
    print(json.dumps({"asked": asked, "done": done}), flush=True)
