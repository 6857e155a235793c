"""The fleet: health, workers, numbers, draining."""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, Field
from starlette.responses import Response

from floodmark.api.deps import Operating, Reading
from floodmark.api.models import StatisticsOut, model_of
from floodmark.api.routing import answer, router
from floodmark.model.job import Priority
from floodmark.operations.health import health_details, worker_shape
from floodmark.store.fleet import WorkerInfo

scheduler = router("/scheduler", tag="Scheduler")

_WorkerFields: Any = model_of(
    "WorkerFields",
    WorkerInfo,
    "A process of the fleet.",
    {
        "role": "worker (which may also schedule), scheduler or api.",
        "slots": "Executions it can run at the same time.",
        "busy": "Slots in use.",
        "seen_until": "It is taken for alive until then.",
    },
)


class WorkerOut(_WorkerFields):  # type: ignore[misc] # a model that is made at run time
    """A process of the fleet as it last described itself."""

    leader: bool = Field(description="Whether it is the one that schedules.")


class WorkersOut(BaseModel):
    """The processes of the fleet."""

    draining: bool = Field(description="Whether workers were told to take no more work.")
    leader: str | None = Field(description="Who schedules.")
    workers: list[WorkerOut]


class SchedulerOut(BaseModel):
    """The scheduler, by its last tick."""

    last_tick_ts: datetime | None
    interval_sec: int | None = Field(description="How often the scheduler ticks at least (SCHEDULE_CHECK_INTERVAL).")
    lock_owner: str | None = Field(description="The HOSTNAME of the process that schedules.")
    status: Literal["ok", "stale", "down"] = Field(
        description="stale when the last tick is older than two intervals, down after five or if there was none."
    )


class HealthOut(BaseModel):
    """Whether everything is well."""

    status: Literal["ok", "degraded", "down"] = Field(
        description="degraded: all that is due is collected, but Redis is away; down: it is not,"
        " without a database that can be written, a scheduler that ticks and a worker."
    )
    instance: str = Field(description="The process that answers.")
    database: str
    redis: str | None = Field(description="ok, `not configured`, or what is wrong.")
    leader: str | None
    draining: bool
    scheduler: SchedulerOut
    workers: list[WorkerOut]
    problems: list[str] = Field(description="What is wrong, a sentence each.")


class DrainingOut(BaseModel):
    """Whether workers take work."""

    draining: bool


class DepthOut(BaseModel):
    """How many executions wait in line, by priority."""

    high: int
    normal: int
    low: int


class MetricsOut(BaseModel):
    """The numbers that matter first. All of them are at `/metrics`, for Prometheus."""

    queue_depth: DepthOut
    workers: int = Field(description="Workers that are alive.")
    slots: int = Field(description="Executions they can run at the same time.")
    busy: int = Field(description="Slots in use.")
    draining: bool
    leader: str | None
    last_day: StatisticsOut
    last_position: int = Field(description="The position of the newest event.")


@scheduler.get("/health", response_model=HealthOut, summary="Show the health of the fleet")
async def scheduler_health(office: Reading) -> Response:
    """Database, Redis, the scheduler by its last tick, and the workers. Always 200; `status` tells."""
    return answer(await health_details(office.parts))


@scheduler.get("/workers", response_model=WorkersOut, summary="List the processes of the fleet")
async def list_workers(office: Reading) -> Response:
    """Everyone heard of within a day, the living first."""
    leader = await office.leader()
    workers = [worker_shape(info, leader) for info in await office.workers()]
    return answer({"draining": await office.is_draining(), "leader": leader, "workers": workers})


@scheduler.get("/metrics", response_model=MetricsOut, summary="Show the numbers of the fleet")
async def scheduler_metrics(office: Reading) -> Response:
    """Queue, slots, and how the executions of the last day went."""
    depth = await office.parts.queue.depth()
    workers = [info for info in await office.workers() if info.alive and info.role == "worker"]
    return answer(
        {
            "queue_depth": {priority.name.lower(): depth.get(priority, 0) for priority in Priority},
            "workers": len(workers),
            "slots": sum(info.slots for info in workers),
            "busy": sum(info.busy for info in workers),
            "draining": await office.is_draining(),
            "leader": await office.leader(),
            "last_day": await office.statistics(1),
            "last_position": await office.last_position(),
        }
    )


@scheduler.post("/drain", response_model=DrainingOut, summary="Drain the workers")
async def drain(office: Operating) -> Response:
    """Let workers finish what they have and take no more, until they are resumed. For deployments."""
    await office.drain()
    return answer({"draining": True})


@scheduler.post("/resume", response_model=DrainingOut, summary="Resume the workers")
async def resume(office: Operating) -> Response:
    """Undo a drain."""
    await office.undrain()
    return answer({"draining": False})
