"""Leadership: a holder without Redis yields to a process that reaches Redis."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add `leases.yields`."""
    op.add_column("leases", sa.Column("yields", sa.Boolean(), nullable=False, server_default=sa.false()))


def downgrade() -> None:
    """Remove it."""
    op.drop_column("leases", "yields")
