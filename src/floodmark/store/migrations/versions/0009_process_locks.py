"""Process locks: the death of a process is seen by a lock that it held."""

import sqlalchemy as sa
from alembic import op

from floodmark.store.types import UtcTime

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add to `workers` the locks of a process and the moment of its death."""
    op.add_column("workers", sa.Column("lock_file", sa.Text(), nullable=True))
    op.add_column("workers", sa.Column("lock_key", sa.BigInteger(), nullable=True))
    op.add_column("workers", sa.Column("died_at", UtcTime(), nullable=True))


def downgrade() -> None:
    """Forget them."""
    for name in ("died_at", "lock_key", "lock_file"):
        op.drop_column("workers", name)
