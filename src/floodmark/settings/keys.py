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
from floodmark.model.budget import LEAST_REQUESTS, MOST_REQUESTS
from floodmark.model.durations import parse_every, parse_times
from floodmark.model.hosts import allowed_hosts, parse_dns_server, resolved_hosts
from floodmark.model.job import CatchUp, Overlap, Policy
from floodmark.model.notification_kinds import KINDS, addresses_of, bot_id, kinds_of, smtp_server
from floodmark.model.proxies import parse_proxy
from floodmark.model.sinks import parse_sinks

from .showing import Allowed, format_value

# On a busy machine, a step of a millisecond may take a second or two.
_SHORTEST_STEP = timedelta(seconds=3)

Origin = Literal["default", "environment", ".env", "floodmark.toml", "command line", "code"]


def _parse_duration(value: object) -> object:
    """Parse a text: seconds, which may be 0 or have a fraction, or the format of `parse_every`."""
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


def _require_scheme(*starts: str) -> BeforeValidator:
    """Refuse a URL with another scheme, or without anything after the scheme."""

    def check(value: object) -> object:
        if isinstance(value, str) and not any(value.startswith(s) and value != s for s in starts):
            raise ValueError("another kind of URL")
        return value

    return BeforeValidator(check)


def _require_readable(read: Callable[[str], object]) -> Callable[[object], object]:
    """Refuse text that `read` cannot parse; the value stays text."""

    def check(value: object) -> object:
        if isinstance(value, str):
            try:
                read(value)
            except InvalidInput as error:
                raise ValueError(str(error)) from error
        return value

    return check


Count = Annotated[int, Field(ge=1), Allowed("a whole number of at least 1")]
CountOrNone = Annotated[int, Field(ge=0), Allowed("a whole number of at least 0")]
Port = Annotated[int, Field(ge=0, le=65535), Allowed("a port from 0 to 65535")]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False), Allowed("a number above 0")]
Requests = Annotated[
    float,
    Field(ge=LEAST_REQUESTS, le=MOST_REQUESTS),
    Allowed(f"a number from {LEAST_REQUESTS:g} to {MOST_REQUESTS:,}"),
]
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
    BeforeValidator(_parse_duration),
    Allowed("a duration above 0, as in 30, 30s, 5m or 1h"),
]
DurationOrNone = Annotated[
    timedelta,
    Field(ge=timedelta()),
    BeforeValidator(_parse_duration),
    Allowed("a duration, as in 0, 30, 30s, 5m or 1h"),
]
DatabaseUrl = Annotated[
    str,
    _require_scheme("sqlite:///", "postgresql://"),
    Allowed("a URL that begins with sqlite:/// or postgresql://", is_url=True),
]
RedisUrl = Annotated[
    str,
    _require_scheme("redis://", "rediss://", "unix://"),
    Allowed("a URL that begins with redis://, rediss:// or unix://", is_url=True),
]
HttpUrl = Annotated[
    str, _require_scheme("http://", "https://"), Allowed("a URL that begins with http:// or https://", is_url=True)
]
SecretUrl = Annotated[
    SecretStr,
    _require_scheme("http://", "https://"),
    Allowed("a URL that begins with http:// or https://", is_secret=True),
]
ProxyUrl = Annotated[
    str,
    _require_scheme("http://", "socks5://", "socks5h://"),
    Allowed("a URL that begins with http:// or socks5://", is_url=True),
]
SmtpUrl = Annotated[
    str,
    BeforeValidator(_require_readable(smtp_server)),
    _require_scheme("smtp://", "smtps://"),
    Allowed("a URL such as smtp://user:password@mail.example.com:587 or smtps://...", is_url=True),
]
BotToken = Annotated[
    SecretStr, BeforeValidator(_require_readable(bot_id)), Allowed("a token such as 123456:ABC...", is_secret=True)
]
Chat = Annotated[
    str, Field(pattern=r"^(@[A-Za-z]\w{3,31}|-?\d{1,20})$"), Allowed("a chat such as @channel or -1001234567890")
]
Addresses = Annotated[
    str,
    BeforeValidator(_require_readable(addresses_of)),
    Allowed("e-mail addresses, as in ada@example.com, ops@example.com"),
]
KindList = Annotated[str, BeforeValidator(_require_readable(kinds_of)), Allowed(f"some of {', '.join(KINDS)}; or none")]
SinkList = Annotated[
    str,
    BeforeValidator(_require_readable(parse_sinks)),
    Allowed("names of sinks with their kinds, as in archive=webhook, lake=kafka"),
]
HostList = Annotated[
    str,
    BeforeValidator(_require_readable(allowed_hosts)),
    Allowed("host names, addresses and networks, as in intranet.example, *.test, 10.1.0.0/16"),
]
HostMap = Annotated[
    str,
    BeforeValidator(_require_readable(resolved_hosts)),
    Allowed("names with their addresses, as in shop.test=127.0.0.1, api.test=10.1.2.3"),
]
DnsAddress = Annotated[
    str, BeforeValidator(_require_readable(parse_dns_server)), Allowed("an address, as in 10.0.0.53 or [::1]:5353")
]
TelegramProxyUrl = Annotated[
    SecretStr,
    BeforeValidator(_require_readable(parse_proxy)),
    Allowed("a URL such as socks5://USER:PASSWORD@HOST:PORT or mtproxy://SECRET@HOST:PORT", is_secret=True),
]
TimeList = Annotated[str, BeforeValidator(_require_readable(parse_times)), Allowed("durations, as in 1h, 1d, 7d")]
LogLevel = Annotated[Literal["debug", "info", "warning", "error", "critical"], BeforeValidator(_lower)]
LogFormat = Annotated[Literal["auto", "console", "json"], BeforeValidator(_lower)]
ParserMode = Annotated[Literal["auto", "historical", "incremental"], BeforeValidator(_lower)]
RateLimitStrategy = Annotated[Literal["adaptive", "fixed"], BeforeValidator(_lower)]
TracingMode = Annotated[Literal["auto", "otlp", "off"], BeforeValidator(_lower)]
ScheduleChoice = Annotated[Literal["interval", "adaptive"], BeforeValidator(_lower)]
MetricsMode = Annotated[Literal["scrape", "push", "both"], BeforeValidator(_lower)]
OverlapChoice = Annotated[Overlap, BeforeValidator(_lower)]
CatchUpChoice = Annotated[CatchUp, BeforeValidator(_lower)]


class SettingRow(NamedTuple):
    """One setting for display, with masked secrets."""

    key: str
    value: str
    origin: Origin
    help: str


class Settings(BaseModel):
    """All settings of one process, validated. `load` reads them; in code, pass only those that differ from the
    defaults.
    """

    # Deferred: most commands never validate all fields at once.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    database_url: DatabaseUrl = Field(
        default="sqlite:///.floodmark/floodmark.db",
        description="The database: sqlite:/// and a file, or postgresql:// and a server.",
    )
    database_pool_min: CountOrNone = Field(
        default=1, description="Minimum number of open PostgreSQL connections per process."
    )
    database_pool_max: Count = Field(default=10, description="Maximum number of PostgreSQL connections per process.")
    redis_url: RedisUrl | None = Field(default=None, description="Redis or Valkey, optional. Overrides REDIS_HOST.")
    redis_host: Text | None = Field(default=None, description="Redis host, if REDIS_URL is not set.")
    redis_port: Port = Field(default=6379, description="Redis port, with REDIS_HOST.")
    redis_db: CountOrNone = Field(default=0, description="Redis database number, with REDIS_HOST.")
    redis_password: Secret | None = Field(default=None, description="Redis password, with REDIS_HOST.")
    redis_max_connections: Count = Field(default=50, description="Maximum number of Redis connections per process.")

    floodmark_home: Folder = Field(default=Path(".floodmark"), description="Folder for Floodmark's files.")
    floodmark_secret_key: Secret | None = Field(
        default=None, description="Key that encrypts stored sessions. Default: a key file in FLOODMARK_HOME."
    )
    floodmark_secret_key_old: Secret | None = Field(
        default=None, description="The previous key, accepted until `floodmark rotate-key` has replaced it."
    )
    floodmark_app: Reference | None = Field(
        default=None, description="The application that defines your collectors, as module:app."
    )
    python_modules: ModuleList | None = Field(
        default=None,
        description="Modules whose functions the source python may call, besides declared collectors.",
    )
    hostname: Text = Field(
        default_factory=socket.gethostname,
        description="Label of this instance. A random id is added to identify the process.",
    )
    log_level: LogLevel = Field(default="info", description="Lowest level of log lines.")
    log_format: LogFormat = Field(
        default="auto", description="Format of log lines; auto: console on a terminal, otherwise json."
    )

    host: Text = Field(default="127.0.0.1", description="Address to listen on.")
    port: Port = Field(default=8060, description="Port of the API.")
    scheduler_port: Port = Field(default=8061, description="Port for /health and /metrics of `floodmark scheduler`.")
    worker_port: Port = Field(default=8062, description="Port for /health and /metrics of `floodmark worker`.")

    schedule_check_interval: Duration = Field(
        default=timedelta(seconds=60),
        description="Longest time until changes in the database take effect.",
    )
    scheduler_v2_enabled: Flag = Field(
        default=True,
        description="Off: this process does not fire schedules, because an older scheduler still does.",
    )
    scheduler_queue_prefix: Text = Field(
        default="crawler", description="Prefix of all keys in Redis; must differ between installations."
    )
    scheduler_queue_batch_size: Count = Field(
        default=50, description="Maximum number of executions that a worker takes from the queue at once."
    )
    scheduler_worker_pool_size: Count = Field(
        default=10, description="Executions that a worker process runs in parallel."
    )
    scheduler_job_timeout: Duration = Field(
        default=timedelta(seconds=3600), description="Default time-out of an attempt."
    )
    scheduler_leader_ttl: Duration = Field(
        default=timedelta(seconds=30),
        description="A leader that cannot reach the database is replaced after this time.",
    )
    scheduler_leader_key: Text = Field(
        default="scheduler-leader",
        description="Name of the leader's lease; in Redis under SCHEDULER_QUEUE_PREFIX.",
    )
    scheduler_cb_threshold: Count = Field(
        default=5, description="Consecutive failures that open the circuit breaker of a domain."
    )
    scheduler_cb_timeout: Duration = Field(
        default=timedelta(seconds=60), description="Time before an open circuit breaker of a domain is probed."
    )
    execution_lease: Duration = Field(
        default=timedelta(seconds=15),
        description="An execution is rescued if its worker does not renew the lease for this time.",
    )
    execution_rescue_max: Count = Field(
        default=5, description="Rescues in a row after which an execution is dead, because it may crash its workers."
    )
    execution_retry_base: Duration = Field(
        default=timedelta(seconds=10),
        description="Longest delay before the second attempt of an execution; it doubles for each further attempt.",
    )
    execution_retry_max: Duration = Field(
        default=timedelta(minutes=15), description="Longest delay between two attempts of an execution."
    )
    startup_wait: Duration = Field(
        default=timedelta(seconds=60),
        description="How long a starting process waits for PostgreSQL to respond.",
    )
    shutdown_grace: DurationOrNone = Field(
        default=timedelta(seconds=20),
        description="Time to finish executions after SIGTERM; then they are released, and the process ends at"
        " most 5 s later.",
    )
    execution_affinity: DurationOrNone = Field(
        default=timedelta(seconds=2),
        description="Time for which an execution is left to the worker that is preferred for it, such as the one that"
        " has the Telegram session of its account open; then any worker takes it. 0: any worker takes it at once.",
    )
    queue_patience: Duration = Field(
        default=timedelta(seconds=30), description="Waiting time that one step of priority is worth."
    )
    history_keep_days: Count = Field(default=90, description="Days to keep finished executions.")
    history_keep_count: Count | None = Field(
        default=None,
        description="Maximum number of executions to keep; older finished ones are deleted. Unset: no maximum.",
    )
    events_keep_days: Count = Field(default=30, description="Days to keep sent events in the outbox.")
    search_enabled: Flag = Field(
        default=True, description="Keep a full-text index of all items, so that they can be searched."
    )
    proofs_enabled: Flag = Field(
        default=True, description="Extend a hash chain over the items of each stream, to prove what was stored when."
    )
    reports_keep_days: Count = Field(
        default=365, description="Days to keep screenshots and documents of reports. Their data is kept forever."
    )
    events_stream_maxlen: Count = Field(
        default=100_000, description="Approximate maximum number of events in the Redis stream."
    )

    sinks: SinkList | None = Field(
        default=None,
        description="Sinks that get events, as name=kind, separated by commas. Each has settings of its own,"
        " SINK_<NAME>_...: see docs/how-to/sinks.md.",
    )

    max_workers: Count = Field(default=5, description="Threads for collectors that are plain functions.")
    job_max_instances: Count = Field(default=1, description="Maximum number of unfinished executions per job.")
    job_coalesce: Flag = Field(default=True, description="Run one execution for several instants that are due at once.")
    job_misfire_grace_time: DurationOrNone = Field(
        default=timedelta(seconds=300),
        description="An instant that is later than this is missed; JOB_CATCH_UP decides whether it runs.",
    )
    job_replace_existing_instance: Flag = Field(
        default=False,
        description="Replace an existing job when a job of the same name is added, instead of refusing it.",
    )
    job_overlap: OverlapChoice = Field(
        default=Overlap.SKIP,
        description="What to do with a due instant while its job has JOB_MAX_INSTANCES unfinished executions:"
        " skip it, queue it, or replace (cancel) them.",
    )
    job_catch_up: CatchUpChoice = Field(
        default=CatchUp.ONE, description="Which missed instants run: none, one for all, or all."
    )

    job_schedule: ScheduleChoice = Field(
        default="interval",
        description="Schedule of a channel that is added without one: interval (PARSER_SCHEDULER_INTERVAL_SEC) or"
        " adaptive.",
    )
    budget_default_per_minute: Requests = Field(
        default=60,
        description="Requests a minute of the budget `default`, when it is created. Later: `floodmark budgets set`.",
    )

    parser_scheduler_interval_sec: Count = Field(
        default=300, description="Seconds between two collections of a channel."
    )
    parser_mode_override: ParserMode = Field(default="auto", description="Force the mode in which channels are read.")
    parser_retry_max: CountOrNone = Field(default=3, description="Retries of a failed execution.")
    parser_max_concurrency: Count = Field(
        default=4, description="Channels that one Telegram account reads in parallel."
    )
    lpa_max_age_hours: Seconds = Field(
        default=24, description="A channel that was not checked for this many hours is read in the historical mode."
    )
    feature_incremental_parsing_enabled: Flag = Field(
        default=True, description="Off: always read the last 24 hours of a channel."
    )
    telegram_api_id: Count | None = Field(
        default=None, description="Id of your application at Telegram, for `floodmark accounts add`."
    )
    telegram_api_hash: Secret | None = Field(default=None, description="Hash of your application at Telegram.")
    telegram_test_server: Text | None = Field(
        default=None,
        description="HOST:PORT of a test server on this machine: logins go there instead of to Telegram.",
    )
    telegram_proxy: TelegramProxyUrl | None = Field(
        default=None,
        description="Proxy through which accounts without their own one connect: socks5://USER:PASSWORD@HOST:PORT,"
        " mtproxy://SECRET@HOST:PORT, or a link of Telegram.",
    )
    telegram_call_timeout: Duration = Field(
        default=timedelta(seconds=30), description="Time-out of a call to Telegram."
    )
    telegram_session_ttl: Duration = Field(
        default=timedelta(seconds=30),
        description="Another process may open the session of an account if its lease is not renewed for this time.",
    )
    telegram_session_linger: DurationOrNone = Field(
        default=timedelta(seconds=30),
        description="How long an idle session stays connected. With adaptive Telegram jobs it stays until another"
        " process asks for it; 0: it does not stay, and no updates are received.",
    )
    telegram_media_per_minute: Requests = Field(
        default=120, description="Requests a minute with which each account downloads files, of 256 KB each."
    )
    telegram_engagement: TimeList = Field(
        default="1h,1d,7d",
        description="Ages of posts at which views, forwards and reactions are sampled, for jobs with"
        " `--engagement default` and for posts that are revisited.",
    )
    telegram_preview_url: HttpUrl = Field(
        default="https://t.me", description="Site with the web previews of channels, for jobs with `--preview`."
    )
    telegram_preview_delay: DurationOrNone = Field(
        default=timedelta(seconds=3),
        description="Pause between two requests for web previews, in all processes together; longer if robots.txt"
        " asks for it.",
    )
    retry_max_attempts: Count = Field(
        default=5, description="Maximum number of attempts of one call to a source or to Redis."
    )
    retry_max_elapsed_seconds: Seconds = Field(default=120, description="Seconds after which a call is not retried.")
    backoff_base_seconds: Seconds = Field(
        default=0.5, description="Longest delay before the first retry of a call, in seconds."
    )
    backoff_max_seconds: Seconds = Field(
        default=10, description="Longest delay between two attempts of a call, in seconds."
    )
    circuit_breaker_window_seconds: Seconds = Field(
        default=30, description="Failures older than this many seconds do not count."
    )
    circuit_breaker_failure_threshold: Count = Field(
        default=5, description="Failures within the window that open a circuit breaker."
    )
    circuit_breaker_open_timeout_seconds: Seconds = Field(
        default=60, description="Seconds before an open circuit breaker is probed."
    )
    schema_version: Text = Field(default="1.0.0", description="Schema version of exported files.")
    artifacts_dir: Folder | None = Field(
        default=None,
        description="Folder that is kept up to date with one file per chat and day, and that gets the files of posts."
        " Unset: no files.",
    )
    parallelism_max: Count = Field(default=2, description="Chats that `floodmark fetch` reads in parallel.")
    fetch_give_up_after: Duration = Field(
        default=timedelta(minutes=5),
        description="A fetch ends with exit code 1 after Telegram has not responded for this time.",
    )
    rate_limit_strategy: RateLimitStrategy = Field(
        default="adaptive",
        description="adaptive: reduce the call rate after a rate limit, then raise it slowly; fixed: keep the"
        " call rate.",
    )

    metrics_mode: MetricsMode = Field(
        default="scrape", description="How metrics are exported: served at /metrics, pushed to a Pushgateway, or both."
    )
    pushgateway_url: HttpUrl | None = Field(
        default=None, description="URL of the Pushgateway for METRICS_MODE=push or both, as in http://pushgateway:9091."
    )
    metrics_push_interval: Duration = Field(
        default=timedelta(seconds=15), description="Interval between two pushes of metrics."
    )
    metrics_max_label_values: Count = Field(
        default=200, description='Maximum number of values of an open label; further values become "other".'
    )
    tracing: TracingMode = Field(
        default="auto", description="When to send traces: auto if an endpoint is set, otlp always, off never."
    )
    otel_exporter_otlp_endpoint: HttpUrl | None = Field(
        default=None, description="Endpoint for traces as OTLP over HTTP, as in http://collector:4318."
    )
    otel_exporter_otlp_traces_endpoint: HttpUrl | None = Field(
        default=None, description="The same with its complete path, as in http://collector:4318/v1/traces."
    )
    otel_exporter_otlp_headers: Secret | None = Field(
        default=None, description="Headers for the endpoint, as in x-api-key=...,x-team=ops."
    )
    otel_service_name: Text = Field(default="floodmark", description="Name of the service in traces.")
    traces_sampled: Share = Field(
        default=1.0, description="Share of traces to sample; with 1, OTEL_TRACES_SAMPLER decides."
    )
    notify_slack_url: SecretUrl | None = Field(
        default=None, description="Webhook of Slack or a compatible service for notifications."
    )
    notify_discord_url: SecretUrl | None = Field(default=None, description="Webhook of Discord for notifications.")
    notify_telegram_bot_token: BotToken | None = Field(
        default=None, description="Token of the Telegram bot that sends notifications."
    )
    notify_telegram_chat: Chat | None = Field(
        default=None, description="Chat that gets the notifications of the Telegram bot; the bot must be a member."
    )
    notify_telegram_api_url: HttpUrl = Field(
        default="https://api.telegram.org", description="The Bot API server, if it is your own."
    )
    notify_webhook_url: SecretUrl | None = Field(default=None, description="URL that gets notifications as JSON.")
    notify_webhook_secret: Secret | None = Field(
        default=None, description="Secret that signs requests to NOTIFY_WEBHOOK_URL."
    )
    notify_email_to: Addresses | None = Field(
        default=None, description="E-mail addresses for notifications, separated by commas."
    )
    notify_email_from: Addresses | None = Field(
        default=None, description="Sender of notification e-mails. Default: floodmark@HOSTNAME."
    )
    notify_email_smtp_url: SmtpUrl | None = Field(
        default=None, description="The mail server: smtp:// with STARTTLS, or smtps://; with user and password."
    )
    notify_on: KindList = Field(
        default=",".join(KINDS), description="Kinds of problems to notify about. Watches notify anyway."
    )
    notify_debounce: DurationOrNone = Field(
        default=timedelta(minutes=5),
        description="Minimum time between two notifications about the same job or account.",
    )
    notify_group_wait: DurationOrNone = Field(
        default=timedelta(seconds=10), description="How long to collect problems for one notification."
    )
    watch_max_age: DurationOrNone = Field(
        default=timedelta(hours=24),
        description="Watches notify nobody of items that are older than this and were there before the last run.",
    )
    floodmark_url: HttpUrl | None = Field(
        default=None, description="A Floodmark server that commands use instead of a database."
    )
    floodmark_token: Secret | None = Field(default=None, description="Token for FLOODMARK_URL.")
    api_public_without_token: Flag = Field(
        default=False, description="Serve the API on a public address without a token. Everyone may then do everything."
    )
    api_public_url: HttpUrl | None = Field(
        default=None,
        description="URL at which the internet reaches the API and the dashboard, without /api/v2. Needed for WebSub"
        " hubs of feeds, and for a proxy with a path prefix that it does not strip or name.",
    )
    dashboard_process_from: CountOrNone = Field(
        default=3,
        description="Number of open dashboards from which `floodmark up` lets a second process refresh them, so that"
        " jobs do not wait for pages. It takes about 100 MB. 0: never.",
    )
    api_body_max: Count = Field(default=1_048_576, description="Maximum size of an API request body, in bytes.")
    api_cors_origins: Text | None = Field(
        default=None, description="Web origins that may use the API from a browser, separated by commas."
    )
    webhook_window: Duration = Field(default=timedelta(minutes=5), description="Maximum age of a signed webhook.")
    api_url: HttpUrl | None = Field(default=None, description="HTTP API from which schedules are synced.")
    request_timeout: Duration = Field(default=timedelta(seconds=10), description="Time-out of requests to API_URL.")
    sync_interval: Duration = Field(
        default=timedelta(seconds=300), description="Interval between two syncs with API_URL."
    )
    sync_disable_missing: Flag = Field(
        default=False, description="Disable jobs whose schedule is no longer in the response of API_URL."
    )
    sync_disable_max_share: Share = Field(
        default=0.2, description="A sync that would disable more than this share of its jobs changes nothing."
    )
    http_allow_hosts: HostList | None = Field(
        default=None,
        description="Private hosts, addresses and networks that Floodmark may connect to, separated by commas.",
    )
    http_resolve: HostMap | None = Field(
        default=None, description="Addresses for host names that override DNS: name=address, ..."
    )
    http_user_agent: Text | None = Field(
        default=None, description="User agent of requests to the web. Default: floodmark/VERSION."
    )
    http_timeout: Duration = Field(
        default=timedelta(seconds=60), description="Time-out of one request to the web, including redirects."
    )
    http_max_body_bytes: Count = Field(
        default=10_485_760, description="Maximum size of a response from the web, in bytes; decompressed, twice that."
    )
    web_domain_concurrency: Count = Field(
        default=4, description="Maximum number of parallel requests of one process to a domain."
    )
    web_domain_delay: DurationOrNone = Field(
        default=timedelta(seconds=0.5), description="Minimum time between the starts of two requests to a domain."
    )
    web_proxy: ProxyUrl | None = Field(
        default=None,
        description="Proxy of all jobs of the sources web and feed that name none: http:// (CONNECT) or socks5://.",
    )
    web_robots_ttl: DurationOrNone = Field(
        default=timedelta(hours=1),
        description="How long a worker uses the robots.txt of a host before it reads it again; longer, up to a"
        " day, if its Cache-Control says so.",
    )
    web_extract_processes: Count = Field(
        default=2,
        description="Processes of a worker that read documents of jobs with selectors, an extractor or PDF text.",
    )
    web_warc_bytes: Count = Field(
        default=1_000_000_000, description="Size in bytes after which a crawl continues with another WARC file."
    )
    web_max_browsers: Count = Field(
        default=1, description="Browsers of a worker that render pages of crawls, in addition to those of cookie scans."
    )
    web_render_timeout: Duration = Field(
        default=timedelta(seconds=30),
        description="Time-out of loading a page in a browser, and of waiting for its content afterwards.",
    )

    floodmark_chromium: Program | None = Field(
        default=None, description="Path of Chromium for cookie scans. Default: search the usual places."
    )
    cookies_max_browsers: Count = Field(default=1, description="Browsers that a worker runs in parallel.")
    cookies_scans_per_browser: Count = Field(default=20, description="Scans after which a browser is replaced.")
    cookies_page_timeout: Duration = Field(
        default=timedelta(seconds=30), description="Time-out of loading a page in a cookie scan."
    )
    cookies_settle: DurationOrNone = Field(
        default=timedelta(seconds=2), description="Time for the scripts of a page before its cookies are read."
    )
    cookies_banner_wait: DurationOrNone = Field(
        default=timedelta(seconds=10),
        description="How long a cookie scan waits for a consent banner before it reports that there is none.",
    )
    cookies_user_agent: Text | None = Field(
        default=None,
        description="User agent that makes cookie scans recognisable; `navigator.webdriver` then stays on."
        " Default: scans look like a visitor.",
    )
    cookies_dns_server: DnsAddress | None = Field(
        default=None,
        description="DNS server that cookie scans ask for aliases of a site's hosts, such as `10.0.0.53` or"
        " `[::1]:5353`. Default: the first one in /etc/resolv.conf.",
    )
    cookies_scan_timeout: Duration = Field(
        default=timedelta(minutes=15), description="Time after which a cookie scan visits no further pages."
    )
    cookies_sandbox: Flag = Field(
        default=True,
        description="Run browsers in their sandbox. There is no sandbox for root, so do not run workers as root.",
    )

    _origins: Mapping[str, Origin] = PrivateAttr(default_factory=dict)
    _foreign: Mapping[str, str] = PrivateAttr(default_factory=dict)

    @property
    def redis(self) -> str | None:
        """Return the URL of Redis with its password, or None without Redis."""
        if self.redis_url is not None or self.redis_host is None:
            return self.redis_url
        password = self.redis_password.get_secret_value() if self.redis_password else ""
        user = f":{quote(password, safe='')}@" if password else ""
        host = f"[{self.redis_host}]" if ":" in self.redis_host else self.redis_host
        return f"redis://{user}{host}:{self.redis_port}/{self.redis_db}"

    @property
    def step_timeout(self) -> timedelta:
        """Return the deadline of one step against PostgreSQL or Redis: two of them fit into a lease, with a margin."""
        return max(_SHORTEST_STEP, min(self.execution_lease, self.scheduler_leader_ttl) / 3)

    def default_policy(self) -> Policy:
        """Return the policy of a job that sets none."""
        return Policy(
            overlap=self.job_overlap,
            max_instances=self.job_max_instances,
            coalesce=self.job_coalesce,
            misfire_grace=self.job_misfire_grace_time,
            catch_up=self.job_catch_up,
        )

    def origin(self, key: str) -> Origin:
        """Return where the value of a key came from; "code" if it was passed to the constructor."""
        name = key.lower()
        if name not in type(self).model_fields:
            raise InvalidInput(f"{key} is not a setting", hint="`floodmark settings` lists every key.")
        if name in self._origins:
            return self._origins[name]
        return "code" if name in self.model_fields_set else "default"

    def rows(self) -> list[SettingRow]:
        """Return every setting for display, with masked secrets."""
        return [
            SettingRow(name.upper(), format_value(getattr(self, name)), self.origin(name), field.description or "")
            for name, field in type(self).model_fields.items()
        ]

    def section(self, extension: str) -> dict[str, str]:
        """Return the settings of an extension of another package: `MASTODON_TOKEN` is `token` of `mastodon`."""
        prefix = f"{extension}_".replace("-", "_").upper()
        return {key.removeprefix(prefix).lower(): text for key, text in self._foreign.items() if key.startswith(prefix)}

    def sink_section(self, sink: str) -> dict[str, str]:
        """Return the settings of a sink: `SINK_ARCHIVE_URL` is `url` of `archive`, unless there is an `archive-url`."""
        prefix, *others = (f"SINK_{name}_".replace("-", "_").upper() for name in (sink, *parse_sinks(self.sinks or "")))
        longer = tuple(other for other in others if other.startswith(prefix) and other != prefix)
        return {
            key.removeprefix(prefix).lower(): text
            for key, text in self._foreign.items()
            if key.startswith(prefix) and not key.startswith(longer)
        }

    def with_origins(self, origins: Mapping[str, Origin]) -> "Settings":
        """Return the settings with the origin of each named field."""
        copy = self.model_copy()
        copy._origins = dict(origins)
        return copy

    def with_foreign(self, values: Mapping[str, str]) -> "Settings":
        """Return the settings with those of sinks and extensions, such as `SINK_ARCHIVE_URL` or `MASTODON_TOKEN`."""
        copy = self.model_copy()
        copy._foreign = dict(values)
        return copy

    def __repr_args__(self) -> Iterator[tuple[str, str]]:
        # Tracebacks and debuggers show this: no secret may be in it.
        names = (name for name in type(self).model_fields if self.origin(name) != "default")
        return ((name, format_value(getattr(self, name))) for name in names)
