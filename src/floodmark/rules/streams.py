"""Stream names: which watermark a job moves. Jobs with the same stream never collect at the same time."""


def stream_name(stream: str | None, source: str, target: str) -> str:
    """Return the stream of a job: its own, or the default of its source and target."""
    return default_stream(source, target) if stream is None else stream


def default_stream(source: str, target: str, tenant: str | None = None) -> str:
    """Return the stream of a target; tenants that collect the same target do not share a watermark."""
    return f"{source}:{tenant}:{target}" if tenant else f"{source}:{target}"


def split_stream(stream: str) -> tuple[str, str]:
    """Return the source and target whose jobs have this stream by default; without a colon there is no source."""
    at = stream.find(":")
    return stream[: max(at, 0)], stream[at + 1 :]
