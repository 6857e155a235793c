"""Sessions of the dashboard."""

import sqlalchemy as sa
from alembic import op

from floodmark.store.types import UtcTime, now_text

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "sessions",
        sa.Column("session_id", sa.String(36), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("token_id", sa.String(36), nullable=False),
        sa.Column("browser", sa.Text(), server_default="", nullable=False),
        sa.Column("address", sa.Text(), server_default="", nullable=False),
        sa.Column("created_at", UtcTime(), server_default=now_text(), nullable=False),
        sa.Column("last_used_at", UtcTime(), server_default=now_text(), nullable=False),
        sa.Column("expires_at", UtcTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["token_id"], ["tokens.token_id"], name=op.f("fk_sessions_token_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("session_id", name=op.f("pk_sessions")),
    )
    op.create_index("ix_sessions_token_id", "sessions", ["token_id"])


def downgrade() -> None:
    """Drop the table: everyone has to sign in again."""
    op.drop_table("sessions")
