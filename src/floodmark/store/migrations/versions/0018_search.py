"""The search index on PostgreSQL. On SQLite it has a file of its own."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

_TABLES = ("search_state", "search_streams", "search_fields", "search_documents")


def upgrade() -> None:
    """Create the tables. The scheduler fills them."""
    if op.get_bind().dialect.name != "postgresql":
        return
    from sqlalchemy.dialects.postgresql import TSVECTOR  # noqa: PLC0415 - SQLite does without the package

    op.create_table(
        "search_state",
        sa.Column("id", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_search_state_one_row")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_search_state")),
    )
    op.create_table(
        "search_streams",
        sa.Column("stream_id", sa.Integer(), sa.Identity(), nullable=False),
        sa.Column("stream", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("stream_id", name=op.f("pk_search_streams")),
        sa.UniqueConstraint("stream", name=op.f("uq_search_streams_stream")),
    )
    op.create_table(
        "search_fields",
        sa.Column("name", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_search_fields")),
    )
    op.create_table(
        "search_documents",
        sa.Column("id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("stream_id", sa.Integer(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("hash", sa.BigInteger(), nullable=False),
        sa.Column("tokens", TSVECTOR(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_search_documents")),
    )
    op.create_index("ix_search_documents_hash", "search_documents", ["hash"])
    op.create_index(
        "ix_search_documents_tokens",
        "search_documents",
        ["tokens"],
        postgresql_using="gin",
        postgresql_with={"gin_pending_list_limit": 512},
    )


def downgrade() -> None:
    """Drop the tables."""
    if op.get_bind().dialect.name == "postgresql":
        for table in reversed(_TABLES):
            op.drop_table(table)
