"""Completeness: what was read completely, which gaps exist, filling them, and proofs of what was stored when."""

from typing import Annotated

from msgspec import Meta, Struct

from floodmark.model.completeness import TargetCompleteness
from floodmark.model.page import Page
from floodmark.model.proofs import ProofHead, ProofLink

from .declaration import Each, Query, get, post
from .jobs import JobId
from .runs import Asked
from .streams import StreamName
from .words import Cursor, Limit, Text

_TAG = "Completeness"


class GapFill(Struct, frozen=True, kw_only=True):
    """A requested run that fills gaps."""

    gaps: Annotated[int, Meta(description="The number of gaps that the run will try to fill.")]
    left: Annotated[int, Meta(description="The number of other gaps, which a run cannot fill.")]
    run: Annotated[Asked | None, Meta(description="The requested execution; null if there is nothing to fill.")] = None


class CompletenessOperations:
    """Show the completeness of targets, fill gaps, and read hash chains."""

    @get("/completeness", tag=_TAG, operation_id="list_completeness")
    async def completeness(
        self,
        *,
        job: Annotated[Text | None, Query("Only the target of this job or stream.")] = None,
        with_gaps: Annotated[bool, Query("Only targets that have gaps.")] = False,
        cursor: Cursor = None,
        limit: Limit = 50,
    ) -> Page[TargetCompleteness]:
        """List what is known to be complete, and the gaps. Sorted by stream.

        Targets whose source has no order, or that were not collected yet, are left out.
        """

    each_completeness = Each(completeness)

    @post("/jobs/{job_id}/fill-gaps", tag=_TAG, role="operate", status=202)
    async def fill_gaps(self, name: JobId) -> GapFill:
        """Fill the gaps of a job's target. An ordinary run reads them, within limits and budgets; then it collects.

        What the source does not have any more stays a gap, and says so.
        """

    @get("/proofs", tag=_TAG, operation_id="list_proof_heads")
    async def proof_heads(self, *, cursor: Cursor = None, limit: Limit = 50) -> Page[ProofHead]:
        """List the ends of hash chains. Each stream has a chain; sorted by stream."""

    each_proof_head = Each(proof_heads)

    @get("/streams/{stream}/proof", tag=_TAG, operation_id="list_proof_links", is_content=True)
    async def proof(self, stream: StreamName, *, cursor: Cursor = None, limit: Limit = 50) -> Page[ProofLink]:
        """Read the hash chain of a stream. Links are in order; each covers the items that were stored together."""

    each_proof_link = Each(proof)
