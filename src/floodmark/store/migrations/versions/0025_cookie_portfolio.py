"""Cookie scans: reports over all domains, and the scans in them."""

import sqlalchemy as sa
from alembic import op

from floodmark.store.types import Serial, UtcTime

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "portfolio_reports",
        sa.Column("report_id", Serial, sa.Identity(), nullable=False),
        sa.Column("made_at", UtcTime(), nullable=False),
        sa.Column("made_by", sa.Text(), nullable=False),
        sa.Column("format", sa.Text(), nullable=False),
        sa.Column("domains", sa.Integer(), nullable=False),
        sa.Column("findings", sa.Integer(), nullable=False),
        sa.Column("sha256", sa.String(64)),
        sa.PrimaryKeyConstraint("report_id", name=op.f("pk_portfolio_reports")),
    )
    op.create_table(
        "portfolio_scans",
        sa.Column("report_id", sa.BigInteger(), nullable=False),
        sa.Column("stream", sa.Text(), nullable=False),
        sa.Column("scan", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("report_id", "stream", name=op.f("pk_portfolio_scans")),
    )


def downgrade() -> None:
    """Drop the tables."""
    op.drop_table("portfolio_scans")
    op.drop_table("portfolio_reports")
