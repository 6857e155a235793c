"""Triggers: the patterns of jobs that are more than a literal, among all that jobs name."""

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None

_WEBHOOK, _CHANNEL = "COALESCE(trigger_webhook, '')", "COALESCE(trigger_channel, '')"
_OPEN = {
    "trigger_webhook": f"rtrim(replace(replace(replace({_WEBHOOK}, '*', ''), '{{', ''), '//', ''), '/') <> {_WEBHOOK}",
    "trigger_channel": f"replace(replace(replace({_CHANNEL}, '*', ''), '?', ''), '[', '') <> {_CHANNEL}",
}


def upgrade() -> None:
    """Find them without reading all."""
    for column, condition in _OPEN.items():
        where = sa.text(condition)
        op.create_index(_name(column), "jobs", [column], postgresql_where=where, sqlite_where=where)


def downgrade() -> None:
    """Read all again."""
    for column in _OPEN:
        op.drop_index(_name(column), "jobs")


def _name(column: str) -> str:
    return f"ix_jobs_open_{column.removeprefix('trigger_')}"
