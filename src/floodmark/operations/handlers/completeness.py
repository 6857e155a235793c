"""Handlers of completeness and proofs."""

from floodmark.errors import InvalidInput
from floodmark.model.completeness import TargetCompleteness
from floodmark.model.page import Page, last_key, page_of
from floodmark.model.proofs import ProofHead, ProofLink
from floodmark.observability.tracing import trace_trigger
from floodmark.operations.completeness import CompletenessOperations, GapFill
from floodmark.operations.runs import Asked
from floodmark.rules.completeness import FILLABLE
from floodmark.rules.starting import FILL

from .base import Handlers


class CompletenessHandlers(CompletenessOperations, Handlers):
    """Ledgers and hash chains in the store."""

    async def completeness(
        self, *, job: str | None = None, with_gaps: bool = False, cursor: str | None = None, limit: int = 50
    ) -> Page[TargetCompleteness]:
        stream = None if job is None else await self.find_stream(job)
        after = last_key("completeness", cursor, str)
        rows = await self.store.ledgers.page(stream=stream, with_gaps=with_gaps, after=after, limit=limit + 1)
        return page_of(rows, limit, "completeness", lambda row: [row.stream])

    async def fill_gaps(self, name: str) -> GapFill:
        job = await self.store.jobs.get(name)
        gaps = await self.store.ledgers.gaps(job.stream)
        fillable = [gap for gap in gaps if gap.kind in FILLABLE]
        if not fillable:
            return GapFill(gaps=0, left=len(gaps))
        if job.paused:
            raise InvalidInput(
                f"{job.name} is paused, so its gaps cannot be filled", hint=f"resume it: floodmark resume {job.name}"
            )
        runs = self.resources.runs
        with trace_trigger(self.resources.tracing, FILL, job.name) as traceparent:
            forced = await runs.force(runs.request(job.job_id, actor=self.actor, trigger=FILL, traceparent=traceparent))
        run = Asked(execution_id=forced.execution_id, scheduled_for=forced.scheduled_for, reason=forced.reason)
        return GapFill(gaps=len(fillable), left=len(gaps) - len(fillable), run=run)

    async def proof_heads(self, *, cursor: str | None = None, limit: int = 50) -> Page[ProofHead]:
        rows = await self.store.proofs.heads(last_key("proofs", cursor, str), limit + 1)
        return page_of(rows, limit, "proofs", lambda row: [row.stream])

    async def proof(self, stream: str, *, cursor: str | None = None, limit: int = 50) -> Page[ProofLink]:
        name = await self.find_items_stream(stream)
        rows = await self.store.proofs.links(name, last_key("proof", cursor, int) or 0, limit + 1)
        return page_of(rows, limit, "proof", lambda row: [row.number])
