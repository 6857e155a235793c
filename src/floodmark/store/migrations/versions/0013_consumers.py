"""Positions of consumers of events: a table instead of facts named `<sink>.position`."""

import json

import sqlalchemy as sa
from alembic import op

from floodmark.store.types import Json, UtcTime, now_text

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_facts = sa.table("facts", sa.column("name", sa.Text()), sa.column("value", Json))


def upgrade() -> None:
    """Create the table, and move the positions of sinks there."""
    consumers = op.create_table(
        "consumers",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("place", sa.Text()),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("state", Json),
        sa.Column("paused", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("error", sa.Text()),
        sa.Column("failed_at", UtcTime()),
        sa.Column("moved_at", UtcTime(), server_default=now_text(), nullable=False),
        sa.Column("created_at", UtcTime(), server_default=now_text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_consumers")),
    )
    connection, is_position = op.get_bind(), _facts.c.name.like("%.position")
    for name, value in connection.execute(sa.select(_facts.c.name, _facts.c.value).where(is_position)).all():
        stored = json.loads(value) if isinstance(value, str) else value
        row = {
            "name": f"sink:{name.removesuffix('.position')}",
            "place": stored["folder"],
            "position": stored["position"],
            "state": stored.get("filling"),
        }
        connection.execute(sa.insert(consumers).values(**row))
    connection.execute(sa.delete(_facts).where(is_position))


def downgrade() -> None:
    """Drop the table: sinks start again."""
    op.drop_table("consumers")
