"""Portfolio: the streams of cookie scans among all streams."""

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None

_NAME, _TABLE = "ix_watermarks_cookie_scans", "watermarks"
_WHERE = sa.text("substr(stream, 1, 8) = 'cookies:'")


def upgrade() -> None:
    """Find the few among a million streams."""
    op.create_index(_NAME, _TABLE, ["stream"], postgresql_where=_WHERE, sqlite_where=_WHERE)


def downgrade() -> None:
    """Read all streams again."""
    op.drop_index(_NAME, _TABLE)
