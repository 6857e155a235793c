"""Hints of errors about accounts."""

HOW_TO_ADD = "Add one: floodmark accounts add NAME --phone +..."
LOG_IN = "log in with: floodmark accounts add NAME --phone +49..."


def relogin_hint(account: str) -> str:
    """Return the hint for an account that was lost."""
    return f"Log in again: floodmark accounts add {account} --replace"
