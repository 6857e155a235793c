"""How many times in a row Floodmark's own events have led to an execution."""

import sqlalchemy as sa
from alembic import op

from floodmark.store.types import UtcTime, now_text

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create `execution_hops`."""
    op.create_table(
        "execution_hops",
        sa.Column("execution_id", sa.String(length=36), nullable=False),
        sa.Column("hops", sa.Integer(), nullable=False),
        sa.Column("created_at", UtcTime(), server_default=now_text(), nullable=False),
        sa.PrimaryKeyConstraint("execution_id", name=op.f("pk_execution_hops")),
    )
    op.create_index("ix_execution_hops_created_at", "execution_hops", ["created_at"])


def downgrade() -> None:
    """Drop it."""
    op.drop_index("ix_execution_hops_created_at", table_name="execution_hops")
    op.drop_table("execution_hops")
