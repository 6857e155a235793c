"""The check of `floodmark doctor` for Telegram: the accounts."""

from sqlalchemy import select

from floodmark.model.fleet import Finding
from floodmark.sources.form import CheckTools

from .tables import accounts

_SHOWN = 5


async def check_accounts(tools: CheckTools) -> list[Finding]:
    """Check that no account is parked; nothing if there are none."""
    query = select(accounts.c.name, accounts.c.state, accounts.c.reason).order_by(accounts.c.name)
    async with tools.database.reading() as connection:
        rows = (await connection.execute(query)).all()
    if not rows:
        return []
    lost = [row for row in rows if row.state != "active"]
    if not lost:
        text = f"{len(rows)} Telegram account{' is' if len(rows) == 1 else 's are'} in use"
        return [Finding(code="accounts", ok=True, text=text)]
    named = ", ".join(f"{row.name} ({row.reason or row.state})" for row in lost[:_SHOWN])
    text = f"{len(lost)} of {len(rows)} Telegram accounts cannot be used: {named}"
    return [Finding(code="accounts", ok=False, text=text, hint=f"test it with: floodmark accounts test {lost[0].name}")]
