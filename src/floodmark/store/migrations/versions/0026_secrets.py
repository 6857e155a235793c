"""Secrets that jobs refer to by name."""

import sqlalchemy as sa
from alembic import op

from floodmark.store.types import UtcTime, now_text

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "secrets",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("created_at", UtcTime(), server_default=now_text(), nullable=False),
        sa.Column("changed_at", UtcTime(), server_default=now_text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_secrets")),
    )


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("secrets")
