"""Keys of the matches on a page, of jobs that select parts of pages."""

import sqlalchemy as sa
from alembic import op

from floodmark.store.types import Json

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create `page_matches`."""
    op.create_table(
        "page_matches",
        sa.Column("stream", sa.Text(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("keys", Json, nullable=False),
        sa.PrimaryKeyConstraint("stream", "url", name=op.f("pk_page_matches")),
    )


def downgrade() -> None:
    """Drop it."""
    op.drop_table("page_matches")
