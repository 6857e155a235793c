"""Look-ups that do not depend on statistics: each fits one index only."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None

_TABLE, _ACTIVE, _HELD = "executions", "ix_job_executions_active", "ix_job_executions_held"
_JOB, _HOLD = sa.text("(job_id || '')"), sa.text("COALESCE(hold, '')")


def upgrade() -> None:
    """Index the unfinished executions of a job by expressions on PostgreSQL, and held ones by their hold alone."""
    # Executions that were replaced by a newer one kept their hold when they ended.
    op.execute(f"UPDATE {_TABLE} SET hold = NULL WHERE hold IS NOT NULL AND state <> 'waiting'")
    is_postgres = op.get_bind().dialect.name == "postgresql"
    _replace(_HELD, ["hold", _JOB] if is_postgres else ["hold", "job_id", "scheduled_for"], "hold IS NOT NULL")
    if is_postgres:
        _replace(_ACTIVE, [_JOB, _HOLD, "scheduled_for"], "completed_at IS NULL")


def downgrade() -> None:
    """Index both as before."""
    _replace(_HELD, ["hold", "job_id", "scheduled_for"], "state = 'waiting' AND hold IS NOT NULL")
    _replace(_ACTIVE, ["job_id", "hold"], "completed_at IS NULL")


def _replace(name: str, columns: Sequence[Any], where: str) -> None:
    op.drop_index(name, _TABLE)
    op.create_index(name, _TABLE, columns, postgresql_where=sa.text(where), sqlite_where=sa.text(where))
