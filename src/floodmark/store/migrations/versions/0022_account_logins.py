"""Logins to accounts that wait for their code or password."""

import sqlalchemy as sa
from alembic import op

from floodmark.store.types import UtcTime, now_text

revision = "0022"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "account_logins",
        sa.Column("login_id", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("step", sa.Text(), nullable=False),
        sa.Column("how", sa.Text(), nullable=False),
        sa.Column("tries", sa.Integer(), server_default="0", nullable=False),
        sa.Column("secrets", sa.Text(), nullable=False),
        sa.Column("created_at", UtcTime(), server_default=now_text(), nullable=False),
        sa.Column("expires_at", UtcTime(), nullable=False),
        sa.CheckConstraint("step IN ('code', 'password')", name=op.f("ck_account_logins_step")),
        sa.PrimaryKeyConstraint("login_id", name=op.f("pk_account_logins")),
    )


def downgrade() -> None:
    """Drop the table: open logins begin again."""
    op.drop_table("account_logins")
