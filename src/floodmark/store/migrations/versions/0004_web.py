"""The web: pages of crawled sites, and pictures and documents that belong to items."""

import sqlalchemy as sa
from alembic import op

from floodmark.store.types import UtcTime, now_text

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create `pages` and `blobs`."""
    op.create_table(
        "pages",
        sa.Column("stream", sa.Text(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("depth", sa.Integer(), server_default="0", nullable=False),
        sa.Column("place", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("crawl", sa.Integer(), server_default="0", nullable=False),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("etag", sa.Text(), nullable=True),
        sa.Column("last_modified", sa.Text(), nullable=True),
        sa.Column("content_hash", sa.Text(), nullable=True),
        sa.Column("misses", sa.Integer(), server_default="0", nullable=False),
        sa.Column("note", sa.Text(), nullable=True),
        sa.Column("visited_at", UtcTime(), nullable=True),
        sa.PrimaryKeyConstraint("stream", "url", name=op.f("pk_pages")),
    )
    op.create_index("ix_pages_frontier", "pages", ["stream", "crawl", "depth", "place"])
    where = sa.text("content_hash IS NOT NULL")
    op.create_index("ix_pages_content", "pages", ["stream", "content_hash"], postgresql_where=where, sqlite_where=where)
    op.create_table(
        "blobs",
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("media_type", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.Column("kept_at", UtcTime(), server_default=now_text(), nullable=False),
        sa.PrimaryKeyConstraint("sha256", name=op.f("pk_blobs")),
    )
    op.create_index("ix_blobs_kept_at", "blobs", ["kept_at"])


def downgrade() -> None:
    """Drop them."""
    op.drop_table("blobs")
    op.drop_table("pages")
