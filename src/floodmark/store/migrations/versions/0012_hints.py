"""Hints: how many each trigger gave."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Count hints by trigger."""
    op.add_column("triggers", sa.Column("hinted", sa.BigInteger(), server_default="0", nullable=False))


def downgrade() -> None:
    """Drop the count."""
    op.drop_column("triggers", "hinted")
