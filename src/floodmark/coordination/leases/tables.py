"""Tables of named leases."""

from sqlalchemy import BigInteger, Boolean, Column, Table, Text, false

from floodmark.store.schema import metadata
from floodmark.store.types import UtcTime

leases = Table(
    "leases",
    metadata,
    Column("name", Text, primary_key=True),
    Column("holder", Text, nullable=False),
    # Grows with every new holder.
    Column("term", BigInteger, nullable=False, server_default="1"),
    Column("lease_until", UtcTime, nullable=False),
    # The holder cannot do all of the work: a process that can may take the lease before it ends.
    Column("yields", Boolean, nullable=False, server_default=false()),
)
