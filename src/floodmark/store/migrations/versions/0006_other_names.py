"""Names of other schedulers: `jobs.id`, the views `schedules` and `job_executions`, the table `scan_profiles`.

The table of executions is called `executions` from here on. `job_executions` becomes a view with all of its columns
and also `schedule_id`, `status`, `domain`, `domain_config_id`, `scan_id` and `metadata`. Both views are writable.
Floodmark itself uses the tables.
"""

import sqlalchemy as sa
from alembic import op

from floodmark.store.types import SQLITE_NOW, Json, UtcTime, new_id, now_text

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

# Columns that the view passes through, with their defaults for inserted rows.
_PASSED = {
    "job_name": None,
    "scheduled_for": None,
    "priority": "2",
    "trigger": "'schedule'",
    "params": None,
    "attempt": "0",
    "rescues": "0",
    "coalesced": "0",
    "reason": None,
    "hold": None,
    "not_before": None,
    "queue_rank": None,
    "lease_until": None,
    "worker": None,
    "fence": None,
    "cancel_requested": None,
    "started_at": None,
    "duration_seconds": None,
    "items_new": "0",
    "items_changed": "0",
    "items_known": "0",
    "error_message": None,
    "error_details": None,
    "traceparent": None,
}
_STATUS_OF = {
    "queued": "pending",
    "waiting": "pending",
    "done": "success",
    "dead": "failed",
}
# Names that other schedulers use for our states; other words are taken as they are.
_STATE_OF = {
    "pending": "queued",
    "success": "done",
    "successful": "done",
    "succeeded": "done",
    "completed": "done",
    "failed": "dead",
    "failure": "dead",
    "error": "dead",
    "canceled": "cancelled",
}
_ENDED = "('done', 'dead', 'cancelled', 'skipped')"
_NOT_OURS = "last_run and last_status are written by Floodmark: leave them out"
_NO_DOMAIN = "a schedule needs a domain"
_NOT_THE_DOMAIN = "domain and domain_config_id belong to the schedule: change them there"


def upgrade() -> None:
    """Rename the table, then create the column, the table and the views."""
    op.rename_table("job_executions", "executions")
    op.add_column("jobs", sa.Column("id", sa.String(length=36), sa.Computed("job_id")))
    op.create_table(
        "scan_profiles",
        sa.Column("profile_id", sa.String(length=36), server_default=new_id(), nullable=False),
        sa.Column("name", sa.Text(), nullable=True),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("params", Json, server_default=sa.text("'{}'"), nullable=False),
        sa.Column("created_at", UtcTime(), server_default=now_text(), nullable=False),
        sa.Column("updated_at", UtcTime(), server_default=now_text(), nullable=False),
        sa.PrimaryKeyConstraint("profile_id", name=op.f("pk_scan_profiles")),
    )
    is_postgresql = op.get_bind().dialect.name == "postgresql"
    op.execute(_schedules(is_postgresql=is_postgresql))
    op.execute(_job_executions(is_postgresql=is_postgresql))
    for statement in _POSTGRESQL if is_postgresql else _SQLITE:
        op.execute(sa.text(statement.replace(":", "\\:")))


def downgrade() -> None:
    """Undo it all."""
    for view in ("schedules", "job_executions"):
        op.execute(f"DROP VIEW {view}")
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DROP FUNCTION floodmark_write_schedule()")
        op.execute("DROP FUNCTION floodmark_write_execution()")
    op.drop_table("scan_profiles")
    op.drop_column("jobs", "id")
    op.rename_table("executions", "job_executions")


def _translate(column: str, words: dict[str, str]) -> str:
    cases = " ".join(f"WHEN '{word}' THEN '{other}'" for word, other in words.items())
    return f"CASE {column} {cases} ELSE {column} END"


def _schedules(*, is_postgresql: bool) -> str:
    empty = "'{}'::jsonb" if is_postgresql else "'{}'"
    return f"""
        CREATE VIEW schedules AS
        SELECT job_id AS schedule_id, domain_config_id, COALESCE(domain, target) AS domain, profile_id,
               COALESCE(frequency, schedule_type) AS frequency, COALESCE(time_config, {empty}) AS time_config,
               (schedule_enabled AND NOT paused) AS enabled,
               CASE WHEN next_run < '9999-01-01' THEN next_run END AS next_run,
               last_run, {_translate("last_status", _STATUS_OF)} AS last_status, created_at, updated_at
          FROM jobs WHERE source = 'cookies' OR domain IS NOT NULL
    """


def _job_executions(*, is_postgresql: bool) -> str:
    scan_id = "e.result ->> 'scan_id'" if is_postgresql else "json_extract(e.result, '$.scan_id')"
    passed = ", ".join(f"e.{column}" for column in _PASSED)
    return f"""
        CREATE VIEW job_executions AS
        SELECT e.execution_id, e.job_id AS schedule_id, e.job_id,
               COALESCE(j.domain, CASE WHEN j.source = 'cookies' THEN j.target END) AS domain, j.domain_config_id,
               {_translate("e.state", _STATUS_OF)} AS status, e.state,
               COALESCE({scan_id}, CASE WHEN j.source = 'cookies' AND e.state = 'done' THEN e.execution_id END)
               AS scan_id,
               e.result AS metadata, e.result, e.completed_at, e.created_at, {passed}
          FROM executions e LEFT JOIN jobs j ON j.job_id = e.job_id
    """


# The values of a written row, as SQL for both databases. {differs} is the operator for "is not the same as".
_STATE = _translate("COALESCE(NEW.status, NEW.state)", _STATE_OF)
_NEW_STATE = (
    f"CASE WHEN NEW.status {{differs}} OLD.status THEN {_translate('NEW.status', _STATE_OF)} ELSE NEW.state END"
)
_NEW_RESULT = "CASE WHEN NEW.metadata {differs} OLD.metadata THEN NEW.metadata ELSE NEW.result END"
_NEW_JOB = "CASE WHEN NEW.schedule_id {differs} OLD.schedule_id THEN NEW.schedule_id ELSE NEW.job_id END"
_JOB_NAME = """COALESCE(NEW.job_name, (SELECT name FROM jobs WHERE job_id = COALESCE(NEW.schedule_id, NEW.job_id)),
                        NEW.domain, NEW.schedule_id, NEW.job_id)"""


def _insert_execution(*, execution_id: str, now: str, result: str) -> str:
    passed = {
        column: f"COALESCE(NEW.{column}, {usual})" if usual else f"NEW.{column}" for column, usual in _PASSED.items()
    }
    values = passed | {
        "execution_id": execution_id,
        "job_id": "COALESCE(NEW.schedule_id, NEW.job_id)",
        "job_name": _JOB_NAME,
        "scheduled_for": f"COALESCE(NEW.scheduled_for, NEW.started_at, {now})",
        "state": _STATE,
        "completed_at": f"COALESCE(NEW.completed_at, CASE WHEN ({_STATE}) IN {_ENDED} THEN {now} END)",
        "result": result,
        "created_at": f"COALESCE(NEW.created_at, {now})",
    }
    return f"INSERT INTO executions ({', '.join(values)}) VALUES ({', '.join(values.values())});"


def _update_execution(*, now: str, differs: str) -> str:
    state = _NEW_STATE.format(differs=differs)
    values = {column: f"NEW.{column}" for column in _PASSED} | {
        "job_id": _NEW_JOB.format(differs=differs),
        "state": state,
        "completed_at": f"COALESCE(NEW.completed_at, CASE WHEN ({state}) IN {_ENDED} THEN {now} END)",
        "result": _NEW_RESULT.format(differs=differs),
    }
    changes = ", ".join(f"{column} = {value}" for column, value in values.items())
    return f"UPDATE executions SET {changes} WHERE execution_id = OLD.execution_id;"


def _insert_schedule(*, schedule_id: str, now: str, empty: str, true: str) -> str:
    slug = "'cookies-' || replace(lower(NEW.domain), '.', '-')"
    taken = f"EXISTS (SELECT 1 FROM jobs WHERE name = {slug})"
    values = {
        "job_id": schedule_id,
        "name": f"{slug} || CASE WHEN {taken} THEN '-' || substr({schedule_id}, 1, 12) ELSE '' END",
        "source": "'cookies'",
        "target": "lower(NEW.domain)",
        "domain": "lower(NEW.domain)",
        "domain_config_id": "NEW.domain_config_id",
        "profile_id": "NEW.profile_id",
        "schedule_type": "'calendar'",
        "frequency": "NEW.frequency",
        "time_config": f"COALESCE(NEW.time_config, {empty})",
        "schedule_enabled": f"COALESCE(NEW.enabled, {true})",
        "next_run": "NEW.next_run",
        "created_at": f"COALESCE(NEW.created_at, {now})",
    }
    return f"INSERT INTO jobs ({', '.join(values)}) VALUES ({', '.join(values.values())});"


def _update_schedule(*, now: str, differs: str) -> str:
    def if_changed(column: str, then: str, otherwise: str) -> str:
        return f"CASE WHEN NEW.{column} {differs} OLD.{column} THEN {then} ELSE {otherwise} END"

    values = {
        "domain": if_changed("domain", "lower(NEW.domain)", "domain"),
        "target": if_changed("domain", "CASE WHEN source = 'cookies' THEN lower(NEW.domain) ELSE target END", "target"),
        "domain_config_id": "NEW.domain_config_id",
        "profile_id": "NEW.profile_id",
        "schedule_type": if_changed("frequency", "'calendar'", "schedule_type"),
        "frequency": if_changed("frequency", "NEW.frequency", "frequency"),
        "time_config": if_changed("time_config", "NEW.time_config", "time_config"),
        "schedule_enabled": if_changed("enabled", "NEW.enabled", "schedule_enabled"),
        "paused": if_changed("enabled", "(paused AND NOT NEW.enabled)", "paused"),
        "pause_reason": if_changed("enabled", "CASE WHEN NOT NEW.enabled THEN pause_reason END", "pause_reason"),
        "next_run": if_changed("next_run", "NEW.next_run", "next_run"),
        "version": "version + 1",
        "updated_at": now,
    }
    changes = ", ".join(f"{column} = {value}" for column, value in values.items())
    return f"UPDATE jobs SET {changes} WHERE job_id = OLD.schedule_id;"


def _foreign(columns: tuple[str, ...], differs: str) -> str:
    return " OR ".join(f"NEW.{column} {differs} OLD.{column}" for column in columns)


_STATUS_COLUMNS, _DOMAIN_COLUMNS = ("last_run", "last_status"), ("domain", "domain_config_id")
_PG_ID, _PG_NOW = "md5(random()::text || clock_timestamp()::text)", "clock_timestamp()"
_PG = "IS DISTINCT FROM"
_PG_RESULT = """CASE WHEN NEW.scan_id IS NULL THEN COALESCE(NEW.metadata, NEW.result)
    ELSE COALESCE(NEW.metadata, NEW.result, '{}'::jsonb) || jsonb_build_object('scan_id', NEW.scan_id) END"""
_POSTGRESQL = (
    f"""
    CREATE FUNCTION floodmark_write_schedule() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF TG_OP = 'DELETE' THEN
            DELETE FROM jobs WHERE job_id = OLD.schedule_id;
            RETURN OLD;
        ELSIF TG_OP = 'UPDATE' THEN
            IF {_foreign(_STATUS_COLUMNS, _PG)} THEN
                RAISE EXCEPTION '{_NOT_OURS}';
            END IF;
            {_update_schedule(now=_PG_NOW, differs=_PG)}
        ELSE
            IF NEW.domain IS NULL THEN
                RAISE EXCEPTION '{_NO_DOMAIN}';
            END IF;
            NEW.schedule_id := COALESCE(NEW.schedule_id, {_PG_ID});
            {_insert_schedule(schedule_id="NEW.schedule_id", now=_PG_NOW, empty="'{}'::jsonb", true="TRUE")}
        END IF;
        RETURN NEW;
    END $$
    """,
    """
    CREATE TRIGGER floodmark_write_schedule INSTEAD OF INSERT OR UPDATE OR DELETE ON schedules
    FOR EACH ROW EXECUTE FUNCTION floodmark_write_schedule()
    """,
    f"""
    CREATE FUNCTION floodmark_write_execution() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF TG_OP = 'DELETE' THEN
            DELETE FROM executions WHERE execution_id = OLD.execution_id;
            RETURN OLD;
        ELSIF TG_OP = 'UPDATE' THEN
            IF {_foreign(_DOMAIN_COLUMNS, _PG)} THEN
                RAISE EXCEPTION '{_NOT_THE_DOMAIN}';
            END IF;
            {_update_execution(now=_PG_NOW, differs=_PG)}
        ELSE
            NEW.execution_id := COALESCE(NEW.execution_id, {_PG_ID});
            {_insert_execution(execution_id="NEW.execution_id", now=_PG_NOW, result=_PG_RESULT)}
        END IF;
        RETURN NEW;
    END $$
    """,
    """
    CREATE TRIGGER floodmark_write_execution INSTEAD OF INSERT OR UPDATE OR DELETE ON job_executions
    FOR EACH ROW EXECUTE FUNCTION floodmark_write_execution()
    """,
)

_LITE = "IS NOT"
_LITE_RESULT = """CASE WHEN NEW.scan_id IS NULL THEN COALESCE(NEW.metadata, NEW.result)
    ELSE json_set(COALESCE(NEW.metadata, NEW.result, '{}'), '$.scan_id', NEW.scan_id) END"""
_LITE_ID = "lower(hex(randomblob(16)))"


def _sqlite_trigger(name: str, verb: str, view: str, *statements: str) -> str:
    return f"CREATE TRIGGER {name} INSTEAD OF {verb} ON {view} BEGIN {' '.join(statements)} END"


def _refuse_if(condition: str, message: str) -> str:
    return f"SELECT RAISE(ABORT, '{message}') WHERE {condition};"


_SQLITE = (
    _sqlite_trigger(
        "floodmark_insert_schedule",
        "INSERT",
        "schedules",
        _refuse_if("NEW.domain IS NULL", _NO_DOMAIN),
        _insert_schedule(
            schedule_id=f"COALESCE(NEW.schedule_id, {_LITE_ID})", now=SQLITE_NOW, empty="'{}'", true="TRUE"
        ),
    ),
    _sqlite_trigger(
        "floodmark_update_schedule",
        "UPDATE",
        "schedules",
        _refuse_if(_foreign(_STATUS_COLUMNS, _LITE), _NOT_OURS),
        _update_schedule(now=SQLITE_NOW, differs=_LITE),
    ),
    _sqlite_trigger(
        "floodmark_delete_schedule", "DELETE", "schedules", "DELETE FROM jobs WHERE job_id = OLD.schedule_id;"
    ),
    _sqlite_trigger(
        "floodmark_insert_execution",
        "INSERT",
        "job_executions",
        _insert_execution(execution_id=f"COALESCE(NEW.execution_id, {_LITE_ID})", now=SQLITE_NOW, result=_LITE_RESULT),
    ),
    _sqlite_trigger(
        "floodmark_update_execution",
        "UPDATE",
        "job_executions",
        _refuse_if(_foreign(_DOMAIN_COLUMNS, _LITE), _NOT_THE_DOMAIN),
        _update_execution(now=SQLITE_NOW, differs=_LITE),
    ),
    _sqlite_trigger(
        "floodmark_delete_execution",
        "DELETE",
        "job_executions",
        "DELETE FROM executions WHERE execution_id = OLD.execution_id;",
    ),
)
