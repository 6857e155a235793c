"""Accounts: the proxy, masked, and the open takeout session."""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns."""
    op.add_column("accounts", sa.Column("proxy", sa.Text()))
    op.add_column("accounts", sa.Column("takeout_id", sa.BigInteger()))


def downgrade() -> None:
    """Remove the columns."""
    op.drop_column("accounts", "takeout_id")
    op.drop_column("accounts", "proxy")
