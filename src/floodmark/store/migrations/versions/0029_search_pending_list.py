"""How many tokens wait to be added to the search index is set by each step, and no longer by the index."""

from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Forget the limit of the index."""
    if op.get_bind().dialect.name == "postgresql":
        op.execute("ALTER INDEX ix_search_documents_tokens RESET (gin_pending_list_limit)")


def downgrade() -> None:
    """Limit it again."""
    if op.get_bind().dialect.name == "postgresql":
        op.execute("ALTER INDEX ix_search_documents_tokens SET (gin_pending_list_limit = 512)")
