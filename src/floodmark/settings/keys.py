"""Every setting: its key (in lower case), type, default and one line of help.

A key that names its unit (`..._SECONDS`, `..._DAYS`) is a plain number; all other times are `timedelta`.
"""

import re
import socket
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal, NamedTuple
from urllib.parse import quote

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, SecretStr

from floodmark.errors import InvalidInput
from floodmark.model.durations import parse_every
from floodmark.model.hosts import allowed_hosts, resolved_hosts
from floodmark.model.job import CatchUp, Overlap, Policy
from floodmark.model.notification_kinds import KINDS, addresses_of, kinds_of, smtp_server

from .showing import Allowed, shown

# A busy machine takes a second or two for what usually takes a millisecond.
_SHORTEST_STEP = timedelta(seconds=3)

Origin = Literal["default", "environment", ".env", "floodmark.toml", "command line", "code"]


def _duration(value: object) -> object:
    """Seconds, which may have a fraction or be 0, or what `parse_every` reads; only text is looked at."""
    if not isinstance(value, str):
        return value
    if found := re.fullmatch(r"(\d{1,9}(?:\.\d{1,6})?)\s?s?", value, re.ASCII):
        return timedelta(seconds=float(found[1]))
    try:
        return parse_every(value)
    except InvalidInput as error:
        raise ValueError(str(error)) from error


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _starts(*starts: str) -> BeforeValidator:
    """Refuses a URL that begins otherwise, or has nothing behind its beginning."""

    def check(value: object) -> object:
        if isinstance(value, str) and not any(value.startswith(s) and value != s for s in starts):
            raise ValueError("another kind of URL")
        return value

    return BeforeValidator(check)


def _read_by(read: Callable[[str], object]) -> Callable[[object], object]:
    """Refuses text that `read` cannot read; it stays text."""

    def check(value: object) -> object:
        if isinstance(value, str):
            read(value)
        return value

    return check


Count = Annotated[int, Field(ge=1), Allowed("a whole number of at least 1")]
CountOrNone = Annotated[int, Field(ge=0), Allowed("a whole number of at least 0")]
Port = Annotated[int, Field(ge=0, le=65535), Allowed("a port from 0 to 65535")]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False), Allowed("a number above 0")]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False), Allowed("a number from 0 to 1")]
Flag = Annotated[bool, Allowed("true or false")]
Text = Annotated[str, Field(min_length=1), Allowed("text")]
Secret = Annotated[SecretStr, Allowed("text", is_secret=True)]
Folder = Annotated[Path, Allowed("a folder")]
Program = Annotated[Path, Allowed("a program")]
Reference = Annotated[
    str,
    Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$"),
    Allowed("a module and a name in it, as in package.module:app"),
]
ModuleList = Annotated[
    str,
    Field(pattern=r"^[A-Za-z_][\w.]*(\s*,\s*[A-Za-z_][\w.]*)*$"),
    Allowed("module names, as in myapp.feeds, jobs"),
]
Duration = Annotated[
    timedelta,
    Field(gt=timedelta()),
    BeforeValidator(_duration),
    Allowed("a duration above 0, as in 30, 30s, 5m or 1h"),
]
DurationOrNone = Annotated[
    timedelta,
    Field(ge=timedelta()),
    BeforeValidator(_duration),
    Allowed("a duration, as in 0, 30, 30s, 5m or 1h"),
]
DatabaseUrl = Annotated[
    str,
    _starts("sqlite:///", "postgresql://"),
    Allowed("a URL that begins with sqlite:/// or postgresql://", is_url=True),
]
RedisUrl = Annotated[
    str,
    _starts("redis://", "rediss://", "unix://"),
    Allowed("a URL that begins with redis://, rediss:// or unix://", is_url=True),
]
HttpUrl = Annotated[
    str, _starts("http://", "https://"), Allowed("a URL that begins with http:// or https://", is_url=True)
]
SecretUrl = Annotated[
    SecretStr,
    _starts("http://", "https://"),
    Allowed("a URL that begins with http:// or https://", is_secret=True),
]
SmtpUrl = Annotated[
    str,
    BeforeValidator(_read_by(smtp_server)),
    _starts("smtp://", "smtps://"),
    Allowed("a URL such as smtp://user:password@mail.example.com:587 or smtps://...", is_url=True),
]
Addresses = Annotated[
    str,
    BeforeValidator(_read_by(addresses_of)),
    Allowed("e-mail addresses, as in ada@example.com, ops@example.com"),
]
KindList = Annotated[str, BeforeValidator(_read_by(kinds_of)), Allowed(f"some of {', '.join(KINDS)}")]
HostList = Annotated[
    str,
    BeforeValidator(_read_by(allowed_hosts)),
    Allowed("host names, addresses and networks, as in intranet.example, *.test, 10.1.0.0/16"),
]
HostMap = Annotated[
    str,
    BeforeValidator(_read_by(resolved_hosts)),
    Allowed("names with their addresses, as in shop.test=127.0.0.1, api.test=10.1.2.3"),
]
LogLevel = Annotated[Literal["debug", "info", "warning", "error", "critical"], BeforeValidator(_lower)]
LogFormat = Annotated[Literal["auto", "console", "json"], BeforeValidator(_lower)]
ParserMode = Annotated[Literal["auto", "historical", "incremental"], BeforeValidator(_lower)]
RateLimitStrategy = Annotated[Literal["adaptive", "fixed"], BeforeValidator(_lower)]
TracingMode = Annotated[Literal["auto", "otlp", "off"], BeforeValidator(_lower)]
MetricsMode = Annotated[Literal["scrape", "push", "both"], BeforeValidator(_lower)]
OverlapChoice = Annotated[Overlap, BeforeValidator(_lower)]
CatchUpChoice = Annotated[CatchUp, BeforeValidator(_lower)]


class Row(NamedTuple):
    """One setting as it is shown: secrets are masked."""

    key: str
    value: str
    origin: Origin
    help: str


class Settings(BaseModel):
    """All settings of one process, checked. `load` gathers them; in code, name only those that differ."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    database_url: DatabaseUrl = Field(
        default="sqlite:///.floodmark/floodmark.db",
        description="The truth: sqlite:/// a file, or postgresql:// a server.",
    )
    database_pool_min: CountOrNone = Field(default=1, description="PostgreSQL connections that are kept open.")
    database_pool_max: Count = Field(default=10, description="PostgreSQL connections of one process, at most.")
    redis_url: RedisUrl | None = Field(default=None, description="Redis or Valkey, optional. Wins over REDIS_HOST.")
    redis_host: Text | None = Field(default=None, description="Redis host, when there is no REDIS_URL.")
    redis_port: Port = Field(default=6379, description="Redis port, with REDIS_HOST.")
    redis_db: CountOrNone = Field(default=0, description="Redis database number, with REDIS_HOST.")
    redis_password: Secret | None = Field(default=None, description="Redis password, with REDIS_HOST.")
    redis_max_connections: Count = Field(default=50, description="Redis connections of one process, at most.")

    floodmark_home: Folder = Field(
        default=Path(".floodmark"), description="Folder for everything that is kept in files."
    )
    floodmark_secret_key: Secret | None = Field(
        default=None, description="Encrypts stored sessions; without it a key file in FLOODMARK_HOME does."
    )
    floodmark_secret_key_old: Secret | None = Field(
        default=None, description="The key before, accepted until `floodmark rotate-key` has replaced it."
    )
    floodmark_app: Reference | None = Field(default=None, description="Where your collectors are defined: module:app.")
    python_modules: ModuleList | None = Field(
        default=None,
        description="Modules whose functions jobs of the source python may call, besides declared collectors.",
    )
    hostname: Text = Field(
        default_factory=socket.gethostname,
        description="Label of this instance; identity is a random id beside it.",
    )
    log_level: LogLevel = Field(default="info", description="The least important log lines to write.")
    log_format: LogFormat = Field(
        default="auto", description="Log lines for people or machines; auto: people on a terminal."
    )

    host: Text = Field(default="127.0.0.1", description="Address to listen on.")
    port: Port = Field(default=8060, description="Port of the API and dashboard.")
    scheduler_port: Port = Field(default=8061, description="Port for /health and /metrics of `floodmark scheduler`.")
    worker_port: Port = Field(default=8062, description="Port for /health and /metrics of `floodmark worker`.")

    schedule_check_interval: Duration = Field(
        default=timedelta(seconds=60),
        description="Changes made in the database are seen after this long at the latest.",
    )
    scheduler_v2_enabled: Flag = Field(
        default=True,
        description="Off: this process fires nothing by schedule, while an older scheduler still does that.",
    )
    scheduler_queue_prefix: Text = Field(
        default="crawler", description="Prefix of all keys in Redis; one for each installation."
    )
    scheduler_queue_batch_size: Count = Field(
        default=50, description="Executions a worker takes from the queue at once."
    )
    scheduler_worker_pool_size: Count = Field(default=10, description="Executions a worker runs at the same time.")
    scheduler_job_timeout: Duration = Field(
        default=timedelta(seconds=3600), description="How long an execution may run, unless its job says otherwise."
    )
    scheduler_leader_ttl: Duration = Field(
        default=timedelta(seconds=30),
        description="A leader that cannot reach the database is replaced after this long.",
    )
    scheduler_leader_key: Text = Field(
        default="scheduler-leader",
        description="Name of the leader's lease; in Redis it is under SCHEDULER_QUEUE_PREFIX.",
    )
    scheduler_cb_threshold: Count = Field(default=5, description="Failures in a row that open the breaker of a domain.")
    scheduler_cb_timeout: Duration = Field(
        default=timedelta(seconds=60), description="How long the breaker of a domain stays open before a probe."
    )
    execution_lease: Duration = Field(
        default=timedelta(seconds=15), description="An execution whose worker is silent for this long is rescued."
    )
    execution_rescue_max: Count = Field(
        default=5, description="Rescues after which an execution is given up: it may be what kills its workers."
    )
    execution_retry_base: Duration = Field(
        default=timedelta(seconds=10),
        description="Longest pause before the second attempt of an execution; then it doubles.",
    )
    execution_retry_max: Duration = Field(
        default=timedelta(minutes=15), description="Longest pause between two attempts of an execution."
    )
    startup_wait: Duration = Field(
        default=timedelta(seconds=60),
        description="How long a process that stays waits at its start for a PostgreSQL that does not answer.",
    )
    shutdown_grace: DurationOrNone = Field(
        default=timedelta(seconds=20),
        description="Time to finish after SIGTERM; the rest is handed back, and the process leaves 5 s later.",
    )
    queue_patience: Duration = Field(
        default=timedelta(seconds=30), description="One step of priority is worth this much waiting."
    )
    history_keep_days: Count = Field(default=90, description="Days for which finished executions are kept.")
    history_keep_count: Count | None = Field(
        default=None,
        description="Executions that are kept at most; older ones that have ended are deleted. Unset: all.",
    )
    events_keep_days: Count = Field(default=30, description="Days for which sent events are kept in the outbox.")
    reports_keep_days: Count = Field(
        default=365, description="Days for which pictures and documents of reports are kept. Their data stays."
    )
    events_stream_maxlen: Count = Field(default=100_000, description="Events kept in the Redis stream, about.")

    max_workers: Count = Field(default=5, description="Threads for collectors that are plain functions.")
    job_max_instances: Count = Field(default=1, description="Unfinished executions a job may have at once.")
    job_coalesce: Flag = Field(default=True, description="Several instants due at once become one execution.")
    job_misfire_grace_time: DurationOrNone = Field(
        default=timedelta(seconds=300), description="An instant missed by more than this is handled by JOB_CATCH_UP."
    )
    job_replace_existing_instance: Flag = Field(
        default=False, description="Adding a job whose name exists replaces that job, instead of being refused."
    )
    job_overlap: OverlapChoice = Field(
        default=Overlap.SKIP,
        description="What a due instant does while its job has JOB_MAX_INSTANCES unfinished executions: skip it, queue"
        " it, or replace (cancel) them.",
    )
    job_catch_up: CatchUpChoice = Field(default=CatchUp.ONE, description="Which missed instants still run.")

    parser_scheduler_interval_sec: Count = Field(
        default=300, description="Seconds between two collections of a channel."
    )
    parser_mode_override: ParserMode = Field(default="auto", description="Forces how channels are read.")
    parser_retry_max: CountOrNone = Field(default=3, description="Retries of a failed execution.")
    parser_max_concurrency: Count = Field(default=4, description="Channels read at once on one Telegram account.")
    lpa_max_age_hours: Seconds = Field(
        default=24, description="A channel unchecked for this many hours is read historically."
    )
    feature_incremental_parsing_enabled: Flag = Field(
        default=True, description="Off: always read the last 24 hours of a channel."
    )
    telegram_api_id: Count | None = Field(
        default=None, description="Your application's id at Telegram, for `floodmark accounts add`."
    )
    telegram_api_hash: Secret | None = Field(default=None, description="Your application's hash at Telegram.")
    telegram_call_timeout: Duration = Field(
        default=timedelta(seconds=30), description="A call to Telegram without an answer for this long has failed."
    )
    telegram_session_ttl: Duration = Field(
        default=timedelta(seconds=30),
        description="The session of an account is free for others after its process was silent for this long.",
    )
    telegram_session_linger: DurationOrNone = Field(
        default=timedelta(seconds=30), description="How long an idle session stays connected."
    )
    retry_max_attempts: Count = Field(default=5, description="Attempts of one call to a source or to Redis.")
    retry_max_elapsed_seconds: Seconds = Field(
        default=120, description="Seconds after which a call is not tried again."
    )
    backoff_base_seconds: Seconds = Field(
        default=0.5, description="Longest pause before the second try of a call, in seconds."
    )
    backoff_max_seconds: Seconds = Field(
        default=10, description="Longest pause between two tries of a call, in seconds."
    )
    circuit_breaker_window_seconds: Seconds = Field(default=30, description="Failures older than this do not count.")
    circuit_breaker_failure_threshold: Count = Field(
        default=5, description="Failures in the window that open a breaker."
    )
    circuit_breaker_open_timeout_seconds: Seconds = Field(
        default=60, description="Seconds before an open breaker is probed."
    )
    schema_version: Text = Field(default="1.0.0", description="Schema version written into file artifacts.")
    artifacts_dir: Folder | None = Field(
        default=None, description="Folder for one file per chat and day, kept up to date; without it none are written."
    )
    parallelism_max: Count = Field(default=2, description="Chats read at once in a fetch-to-files run.")
    fetch_give_up_after: Duration = Field(
        default=timedelta(minutes=5),
        description="A fetch ends with exit code 1 after Telegram has not answered for this long.",
    )
    rate_limit_strategy: RateLimitStrategy = Field(
        default="adaptive",
        description="adaptive: slow down when told to wait, then grow again; fixed: keep the pace.",
    )

    metrics_mode: MetricsMode = Field(
        default="scrape", description="How metrics leave: at /metrics, to a Pushgateway, or both."
    )
    pushgateway_url: HttpUrl | None = Field(
        default=None, description="The Pushgateway for METRICS_MODE=push or both, as in http://pushgateway:9091."
    )
    metrics_push_interval: Duration = Field(default=timedelta(seconds=15), description="How often metrics are pushed.")
    metrics_max_label_values: Count = Field(
        default=200, description='Values of a label that can grow; the rest are "other".'
    )
    tracing: TracingMode = Field(
        default="auto", description="Traces are sent: auto when there is a place for them, otlp always, off never."
    )
    otel_exporter_otlp_endpoint: HttpUrl | None = Field(
        default=None, description="Where traces go, as OTLP over HTTP, as in http://collector:4318."
    )
    otel_exporter_otlp_traces_endpoint: HttpUrl | None = Field(
        default=None, description="The same with its whole path, as in http://collector:4318/v1/traces."
    )
    otel_exporter_otlp_headers: Secret | None = Field(
        default=None, description="Headers to send with them, as in x-api-key=...,x-team=ops."
    )
    otel_service_name: Text = Field(default="floodmark", description="What we are called in traces.")
    traces_sampled: Share = Field(
        default=1.0, description="Share of the traces that are kept; with 1, what OTEL_TRACES_SAMPLER says."
    )
    notify_slack_url: SecretUrl | None = Field(
        default=None, description="A webhook of Slack, or of what is like it: trouble is told there."
    )
    notify_webhook_url: SecretUrl | None = Field(default=None, description="Trouble is posted there as JSON.")
    notify_webhook_secret: Secret | None = Field(default=None, description="Signs what goes to NOTIFY_WEBHOOK_URL.")
    notify_email_to: Addresses | None = Field(
        default=None, description="Trouble is mailed there; several are separated by commas."
    )
    notify_email_from: Addresses | None = Field(
        default=None, description="Who such mail is from; without it floodmark@HOSTNAME."
    )
    notify_email_smtp_url: SmtpUrl | None = Field(
        default=None, description="The mail server: smtp:// with STARTTLS, or smtps://; user and password in front."
    )
    notify_on: KindList = Field(default=",".join(KINDS), description="What is told.")
    notify_debounce: DurationOrNone = Field(
        default=timedelta(minutes=5), description="How long a job or account rests once it was told of."
    )
    notify_group_wait: DurationOrNone = Field(
        default=timedelta(seconds=10), description="How long trouble waits for other trouble, to be told together."
    )
    floodmark_url: HttpUrl | None = Field(
        default=None, description="A Floodmark server: commands then work there instead of on a database."
    )
    floodmark_token: Secret | None = Field(default=None, description="The token for FLOODMARK_URL.")
    api_public_without_token: Flag = Field(
        default=False, description="Serve the API on a public address although there is no token. Everyone may do all."
    )
    api_body_max: Count = Field(default=1_048_576, description="Bytes that a request to the API may have.")
    api_cors_origins: Text | None = Field(
        default=None, description="Web origins that may use the API from a browser, separated by commas."
    )
    webhook_window: Duration = Field(
        default=timedelta(minutes=5), description="A signed webhook older than this is refused."
    )
    api_url: HttpUrl | None = Field(default=None, description="Schedules are also read from this HTTP API.")
    request_timeout: Duration = Field(default=timedelta(seconds=10), description="Patience with API_URL.")
    sync_interval: Duration = Field(
        default=timedelta(seconds=300), description="How often schedules are read from API_URL."
    )
    sync_disable_missing: Flag = Field(
        default=False, description="Disable schedules that came from API_URL and are no longer in its answer."
    )
    sync_disable_max_share: Share = Field(
        default=0.2, description="A sync that would disable more than this share of its schedules changes nothing."
    )
    http_allow_hosts: HostList | None = Field(
        default=None,
        description="Private hosts, addresses and networks that may be asked all the same, separated by commas.",
    )
    http_resolve: HostMap | None = Field(
        default=None, description="Names that lead to these addresses, whatever DNS says: name=address, ..."
    )
    http_user_agent: Text | None = Field(
        default=None, description="How requests to the web name themselves; without it: floodmark/VERSION."
    )
    http_timeout: Duration = Field(
        default=timedelta(seconds=60), description="Patience with one request to the web, redirects included."
    )
    http_max_body_bytes: Count = Field(
        default=10_485_760, description="Bytes that an answer from the web may have; unpacked, twice as many."
    )
    web_domain_concurrency: Count = Field(
        default=4, description="Requests of one process that a domain gets at the same time."
    )
    web_domain_delay: DurationOrNone = Field(
        default=timedelta(seconds=0.5), description="Pause between the beginnings of two requests to one domain."
    )
    web_robots_ttl: DurationOrNone = Field(
        default=timedelta(hours=1),
        description="How long a worker uses the robots.txt of a host before it asks for it again; longer, up to a day, "
        "where its Cache-Control says so.",
    )

    floodmark_chromium: Program | None = Field(
        default=None, description="The Chromium for cookie scans; without it one is looked for in the usual places."
    )
    cookies_max_browsers: Count = Field(default=1, description="Browsers that a worker runs at the same time.")
    cookies_scans_per_browser: Count = Field(default=20, description="Scans after which a browser is replaced.")
    cookies_page_timeout: Duration = Field(
        default=timedelta(seconds=30), description="How long a page may take to load in a cookie scan."
    )
    cookies_settle: DurationOrNone = Field(
        default=timedelta(seconds=2), description="Time that the scripts of a page have before its cookies are read."
    )
    cookies_banner_wait: DurationOrNone = Field(
        default=timedelta(seconds=10),
        description="Time that a cookie scan waits for a consent banner before it reports that there is none.",
    )
    cookies_user_agent: Text | None = Field(
        default=None,
        description="User agent of cookie scans that want to be recognised; `navigator.webdriver` stays on then."
        " Without it a scan looks like any visitor.",
    )
    cookies_scan_timeout: Duration = Field(
        default=timedelta(minutes=15), description="A cookie scan visits no more pages after this long."
    )
    cookies_sandbox: Flag = Field(
        default=True, description="Run browsers in their sandbox. As root there is none; better not to be root."
    )

    _origins: Mapping[str, Origin] = PrivateAttr(default_factory=dict)

    @property
    def redis(self) -> str | None:
        """The URL of Redis, password included, or None when there is no Redis."""
        if self.redis_url is not None or self.redis_host is None:
            return self.redis_url
        password = self.redis_password.get_secret_value() if self.redis_password else ""
        user = f":{quote(password, safe='')}@" if password else ""
        host = f"[{self.redis_host}]" if ":" in self.redis_host else self.redis_host
        return f"redis://{user}{host}:{self.redis_port}/{self.redis_db}"

    @property
    def step_timeout(self) -> timedelta:
        """How long one step against PostgreSQL or Redis may take: two of them fit into a lease, with time to spare."""
        return max(_SHORTEST_STEP, min(self.execution_lease, self.scheduler_leader_ttl) / 3)

    def default_policy(self) -> Policy:
        """Return the policy of a job that sets none of its own."""
        return Policy(
            overlap=self.job_overlap,
            max_instances=self.job_max_instances,
            coalesce=self.job_coalesce,
            misfire_grace=self.job_misfire_grace_time,
            catch_up=self.job_catch_up,
        )

    def origin(self, key: str) -> Origin:
        """Where the value of a key came from; "code" when it was given to the constructor."""
        name = key.lower()
        if name not in type(self).model_fields:
            raise InvalidInput(f"{key} is not a setting", hint="`floodmark settings` lists every key.")
        if name in self._origins:
            return self._origins[name]
        return "code" if name in self.model_fields_set else "default"

    def rows(self) -> list[Row]:
        """Every setting as it may be shown to anyone."""
        return [
            Row(name.upper(), shown(getattr(self, name)), self.origin(name), field.description or "")
            for name, field in type(self).model_fields.items()
        ]

    def with_origins(self, origins: Mapping[str, Origin]) -> "Settings":
        """The same settings, knowing where each named field came from."""
        copy = self.model_copy()
        copy._origins = dict(origins)
        return copy

    def __repr_args__(self) -> Iterator[tuple[str, str]]:
        # Tracebacks and debuggers show this: no secret may be in it.
        return ((row.key.lower(), row.value) for row in self.rows() if row.origin != "default")
