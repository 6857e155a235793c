"""Process locks: a dead process is detected by the lock that it held."""

import sqlalchemy as sa
from alembic import op

from floodmark.store.types import UtcTime

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the locks and the time of death of a process to `workers`."""
    op.add_column("workers", sa.Column("lock_file", sa.Text(), nullable=True))
    op.add_column("workers", sa.Column("lock_key", sa.BigInteger(), nullable=True))
    op.add_column("workers", sa.Column("died_at", UtcTime(), nullable=True))


def downgrade() -> None:
    """Drop them."""
    for name in ("died_at", "lock_key", "lock_file"):
        op.drop_column("workers", name)
