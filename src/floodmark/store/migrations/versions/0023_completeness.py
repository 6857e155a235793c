"""The completeness ledger of streams, and their hash chains."""

import sqlalchemy as sa
from alembic import op

from floodmark.store.types import Json, UtcTime, now_text

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create `completeness` and `proof_links`."""
    op.create_table(
        "completeness",
        sa.Column("stream", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("value", Json, nullable=False),
        sa.Column("gaps", sa.Integer(), server_default="0", nullable=False),
        sa.Column("updated_at", UtcTime(), server_default=now_text(), nullable=False),
        sa.PrimaryKeyConstraint("stream", name=op.f("pk_completeness")),
        sqlite_with_rowid=False,
    )
    op.create_index(
        "ix_completeness_gaps",
        "completeness",
        ["stream"],
        sqlite_where=sa.text("gaps > 0"),
        postgresql_where=sa.text("gaps > 0"),
    )
    op.create_table(
        "proof_links",
        sa.Column("stream", sa.Text(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("entries", sa.LargeBinary(), nullable=False),
        sa.Column("previous", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("stream", "number", name=op.f("pk_proof_links")),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    """Drop them."""
    op.drop_table("proof_links")
    op.drop_table("completeness")
