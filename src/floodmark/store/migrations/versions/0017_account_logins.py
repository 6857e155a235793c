"""Logins to accounts that wait for their code or password, and indexes for the administration."""

import sqlalchemy as sa
from alembic import op

from floodmark.store.types import UtcTime, now_text

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


_INDEXES = {
    "ix_jobs_account": (["account", "name"], "account IS NOT NULL"),
    "ix_jobs_declared": (["declared"], "declared IS NOT NULL"),
    "ix_jobs_old": (["job_id"], "scheduler_version <> 2"),
}


def upgrade() -> None:
    """Create the table and the indexes."""
    for name, (columns, where) in _INDEXES.items():
        op.create_index(name, "jobs", columns, sqlite_where=sa.text(where), postgresql_where=sa.text(where))
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
    """Drop the table, open logins begin again; and the indexes."""
    for name in _INDEXES:
        op.drop_index(name, "jobs")
    op.drop_table("account_logins")
