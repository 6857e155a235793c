"""Two API processes, two schedulers and a worker on PostgreSQL and Valkey, started as people start them.

What is changed through one is seen through the other within a second. A machine that is busy with other tests can hold
anything up for longer, so one attempt of a few has to be that quick, and all of them have to come out right.
"""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from redis import Redis

from command_line import CommandLine, eventually
from servers import Postgres, Valkey

# Together: every process that runs some of them would have to start the cluster.

WITHIN_SECONDS = 1.0
_ATTEMPTS = 20
_numbers = count(1)


class Cluster:
    """Clients of both API processes, and the Valkey behind them."""

    def __init__(self, one: httpx2.Client, other: httpx2.Client, valkey_url: str) -> None:
        self.one, self.other, self.valkey_url = one, other, valkey_url

    def job(self, **columns: Any) -> str:
        """The name of a new job, made through the one."""
        name = f"job-{next(_numbers)}"
        body = {"name": name, "source": "python", "target": "feeds:news", "stream": name, **columns}
        good(self.one.post("jobs", json=body), 201)
        return name

    def executions(self, job: str, **query: str) -> list[dict[str, Any]]:
        """Of a job, as the other tells."""
        found: list[dict[str, Any]] = good(self.other.get("executions", params={"job": job, **query}))["items"]
        return found


def good(answer: httpx2.Response, status: int = 200) -> Any:
    assert answer.status_code == status, answer.text
    return answer.json()


def soon(change: Callable[[], Callable[[], Any]]) -> None:
    """Make a change, and look until it is seen; of a few attempts one must be quick enough."""
    took = []
    for _ in range(_ATTEMPTS):
        is_seen = change()
        began = time.monotonic()
        eventually(is_seen)
        took.append(time.monotonic() - began)
        if took[-1] < WITHIN_SECONDS:
            return
    pytest.fail(f"never seen within {WITHIN_SECONDS:g} s, but after {took}")


@pytest.fixture(scope="module")
def cluster(postgres: Postgres, valkey: Valkey, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    database = f"cluster_{uuid4().hex[:12]}"
    settings = {"DATABASE_URL": postgres.create_database(database), "REDIS_URL": valkey.url}
    valkey.flush()
    folder = tmp_path_factory.mktemp("cluster")

    def member(name: str) -> CommandLine:
        (folder / name).mkdir()
        return CommandLine(folder / name, **settings)

    assert member("migrate").real("migrate").code == 0
    with ExitStack() as stack:
        apis = [member("api-1"), member("api-2")]
        for api in apis:
            stack.enter_context(api.running("api", "--port", "0"))
        for name, command in (("scheduler-1", "scheduler"), ("scheduler-2", "scheduler"), ("worker", "worker")):
            stack.enter_context(member(name).running(command, "--port", "0"))
        urls = [_address(api) for api in apis]
        made = httpx2.post(f"{urls[0]}tokens", json={"name": "keeper", "role": "admin"}, timeout=120, trust_env=False)
        token = good(made, 201)["token"]
        headers = {"Authorization": f"Bearer {token}"}
        one, other = (
            stack.enter_context(httpx2.Client(base_url=url, headers=headers, timeout=120, trust_env=False))
            for url in urls
        )
        eventually(lambda: _is_complete(other))
        yield Cluster(one, other, valkey.url)
    valkey.flush()
    postgres.drop_database(database)


def _address(api: CommandLine) -> str:
    found = eventually(lambda: re.findall(r"(http://[\w.]+:\d+)", api.said()))
    return f"{found[0]}/api/v2/"


def _is_complete(client: httpx2.Client) -> bool:
    fleet = good(client.get("scheduler/workers"))
    roles = sorted(worker["role"] for worker in fleet["workers"] if worker["alive"])
    return fleet["leader"] is not None and roles == ["api", "api", "scheduler", "scheduler", "worker"]


@pytest.mark.spec("V8", "G1")
@pytest.mark.thorough
def test_both_tell_of_the_same_fleet_with_one_leader(cluster: Cluster) -> None:
    fleets = [good(client.get("scheduler/workers")) for client in (cluster.one, cluster.other)]
    assert [[worker["worker"] for worker in fleet["workers"]] for fleet in fleets] == [
        [worker["worker"] for worker in fleets[0]["workers"]]
    ] * 2
    assert [sum(worker["leader"] for worker in fleet["workers"]) for fleet in fleets] == [1, 1]


@pytest.mark.spec("V8")
@pytest.mark.thorough
def test_a_job_added_through_one_is_seen_by_the_other_and_fired(cluster: Cluster) -> None:
    def change() -> Callable[[], Any]:
        name = cluster.job(schedule_type="immediate")
        return lambda: cluster.other.get(f"jobs/{name}").status_code == 200 and cluster.executions(name)

    soon(change)


@pytest.mark.spec("V8")
def test_a_job_paused_through_one_is_paused_for_all(cluster: Cluster) -> None:
    def change() -> Callable[[], Any]:
        name = cluster.job(interval_seconds=1)
        eventually(lambda: cluster.executions(name))
        good(cluster.one.post(f"jobs/{name}/pause", json={"reason": "storm"}))
        return lambda: good(cluster.other.get(f"jobs/{name}/explain"))["code"] == "paused"

    soon(change)


@pytest.mark.spec("V8")
def test_a_token_revoked_through_one_is_refused_by_the_other(cluster: Cluster) -> None:
    def change() -> Callable[[], Any]:
        name = f"guest-{next(_numbers)}"
        token = good(cluster.one.post("tokens", json={"name": name, "role": "read"}), 201)["token"]
        headers = {"Authorization": f"Bearer {token}"}
        good(cluster.other.get("jobs", headers=headers))
        good(cluster.one.delete(f"tokens/{name}"))
        return lambda: cluster.other.get("jobs", headers=headers).status_code == 401

    soon(change)


@pytest.mark.spec("V8", "V4")
def test_a_webhook_added_through_one_is_taken_by_the_other(cluster: Cluster) -> None:
    def change() -> Callable[[], Any]:
        name = cluster.job()
        good(cluster.one.post("triggers/webhooks", json={"pattern": f"/{name}/*", "jobs": [name]}), 201)
        return lambda: good(cluster.other.post(f"triggers/webhook/{name}/7"), 202)["matched"] == 1

    soon(change)


@pytest.mark.spec("V8", "V4")
def test_a_channel_added_through_one_is_heard_by_the_scheduler(cluster: Cluster) -> None:
    def change() -> Callable[[], Any]:
        name = cluster.job()
        good(cluster.one.post("triggers/channels", json={"pattern": f"{name}:new", "jobs": [name]}), 201)

        def is_heard() -> Any:
            redis.publish(f"{name}:new", "{}")
            return cluster.executions(name)

        return is_heard

    with Redis.from_url(cluster.valkey_url) as redis:
        soon(change)


@pytest.mark.spec("V8", "G1")
@pytest.mark.thorough
def test_a_job_forced_through_one_runs_once(cluster: Cluster) -> None:
    name = cluster.job()
    asked = good(cluster.one.post(f"jobs/{name}/force-run"), 202)
    eventually(lambda: cluster.executions(name, state="done"))
    [ran] = cluster.executions(name)
    assert (ran["execution_id"], ran["attempt"], ran["trigger"]) == (asked["execution_id"], 1, "manual")
    assert good(cluster.other.get(f"streams/{name}"))["items"] == 5


@pytest.mark.spec("V8", "G1")
@pytest.mark.thorough
def test_a_job_is_fired_once_for_each_instant(cluster: Cluster) -> None:
    name = cluster.job(interval_seconds=1)
    eventually(lambda: len(cluster.executions(name, state="done")) >= 3)
    good(cluster.one.post(f"jobs/{name}/pause"))
    instants = [execution["scheduled_for"] for execution in cluster.executions(name)]
    assert len(instants) == len(set(instants))
