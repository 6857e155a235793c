-- revision 0033
CREATE TABLE facts (
	name TEXT NOT NULL, 
	value JSONB NOT NULL, 
	updated_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL, 
	CONSTRAINT pk_facts PRIMARY KEY (name)
)
-- next
CREATE TABLE item_revisions (
	stream TEXT NOT NULL, 
	key TEXT NOT NULL, 
	revision INTEGER NOT NULL, 
	occurred_at TIMESTAMP WITH TIME ZONE, 
	collected_at TIMESTAMP WITH TIME ZONE NOT NULL, 
	data JSONB NOT NULL, 
	content_hash TEXT NOT NULL, 
	deleted BOOLEAN DEFAULT false NOT NULL, 
	execution_id VARCHAR(36), 
	fence BIGINT NOT NULL, 
	CONSTRAINT pk_item_revisions PRIMARY KEY (stream, key, revision)
)
-- next
CREATE TABLE items (
	stream TEXT NOT NULL, 
	key TEXT NOT NULL, 
	revision INTEGER DEFAULT '1' NOT NULL, 
	occurred_at TIMESTAMP WITH TIME ZONE, 
	collected_at TIMESTAMP WITH TIME ZONE NOT NULL, 
	tenant_id TEXT, 
	user_id TEXT, 
	data JSONB NOT NULL, 
	content_hash TEXT NOT NULL, 
	deleted BOOLEAN DEFAULT false NOT NULL, 
	execution_id VARCHAR(36), 
	fence BIGINT NOT NULL, 
	CONSTRAINT pk_items PRIMARY KEY (stream, key)
)
-- next
CREATE TABLE job_executions (
	execution_id VARCHAR(36) NOT NULL, 
	job_id VARCHAR(36) NOT NULL, 
	job_name TEXT NOT NULL, 
	scheduled_for TIMESTAMP WITH TIME ZONE NOT NULL, 
	state TEXT NOT NULL, 
	priority SMALLINT NOT NULL, 
	trigger TEXT DEFAULT 'schedule' NOT NULL, 
	params JSONB, 
	attempt INTEGER DEFAULT '0' NOT NULL, 
	rescues INTEGER DEFAULT '0' NOT NULL, 
	coalesced INTEGER DEFAULT '0' NOT NULL, 
	reason TEXT, 
	hold TEXT, 
	not_before TIMESTAMP WITH TIME ZONE, 
	queue_rank TIMESTAMP WITH TIME ZONE, 
	lease_until TIMESTAMP WITH TIME ZONE, 
	worker TEXT, 
	fence BIGINT, 
	cancel_requested TEXT, 
	started_at TIMESTAMP WITH TIME ZONE, 
	completed_at TIMESTAMP WITH TIME ZONE, 
	duration_seconds FLOAT, 
	items_new INTEGER DEFAULT '0' NOT NULL, 
	items_changed INTEGER DEFAULT '0' NOT NULL, 
	items_known INTEGER DEFAULT '0' NOT NULL, 
	error_message TEXT, 
	error_details JSONB, 
	result JSONB, 
	traceparent TEXT, 
	created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL, 
	CONSTRAINT pk_job_executions PRIMARY KEY (execution_id), 
	CONSTRAINT ck_job_executions_hold CHECK (hold = 'overlap' OR hold = 'dependency' OR hold = 'paused'), 
	CONSTRAINT ck_job_executions_state CHECK (state = 'queued' OR state = 'waiting' OR state = 'running' OR state = 'done' OR state = 'dead' OR state = 'cancelled' OR state = 'skipped'), 
	CONSTRAINT uq_job_executions_job_id_scheduled_for UNIQUE (job_id, scheduled_for)
)
-- next
CREATE INDEX ix_job_executions_active ON job_executions (job_id) WHERE completed_at IS NULL
-- next
CREATE INDEX ix_job_executions_dead ON job_executions (completed_at) WHERE state = 'dead'
-- next
CREATE INDEX ix_job_executions_queued ON job_executions (queue_rank) WHERE state = 'queued'
-- next
CREATE INDEX ix_job_executions_running ON job_executions (lease_until) WHERE state = 'running'
-- next
CREATE INDEX ix_job_executions_waiting ON job_executions (not_before) WHERE state = 'waiting'
-- next
CREATE TABLE jobs (
	job_id VARCHAR(36) DEFAULT md5(random()::text || clock_timestamp()::text) NOT NULL, 
	name TEXT NOT NULL, 
	source TEXT DEFAULT 'python' NOT NULL, 
	target TEXT NOT NULL, 
	stream TEXT, 
	params JSONB DEFAULT '{}' NOT NULL, 
	tags JSONB DEFAULT '[]' NOT NULL, 
	schedule_type TEXT DEFAULT 'interval' NOT NULL, 
	cron_expression TEXT, 
	interval_seconds FLOAT, 
	frequency TEXT, 
	time_config JSONB, 
	timezone TEXT DEFAULT 'UTC' NOT NULL, 
	schedule_enabled BOOLEAN DEFAULT true NOT NULL, 
	paused BOOLEAN DEFAULT false NOT NULL, 
	pause_reason TEXT, 
	invalid_reason TEXT, 
	scheduler_version SMALLINT DEFAULT '2' NOT NULL, 
	priority SMALLINT DEFAULT '2' NOT NULL, 
	timeout_seconds FLOAT DEFAULT '3600' NOT NULL, 
	retry_max INTEGER DEFAULT '3' NOT NULL, 
	overlap TEXT DEFAULT 'skip' NOT NULL, 
	max_instances INTEGER DEFAULT '1' NOT NULL, 
	coalesce BOOLEAN DEFAULT true NOT NULL, 
	misfire_grace_seconds FLOAT DEFAULT '300' NOT NULL, 
	catch_up TEXT DEFAULT 'one' NOT NULL, 
	jitter_seconds FLOAT DEFAULT '0' NOT NULL, 
	limit_key TEXT, 
	account TEXT, 
	next_run TIMESTAMP WITH TIME ZONE, 
	planned_until TIMESTAMP WITH TIME ZONE, 
	last_run TIMESTAMP WITH TIME ZONE, 
	last_success TIMESTAMP WITH TIME ZONE, 
	last_status TEXT, 
	domain TEXT, 
	domain_config_id TEXT, 
	profile_id TEXT, 
	source_id TEXT, 
	url TEXT, 
	tenant_id TEXT, 
	user_id TEXT, 
	trigger_webhook TEXT, 
	trigger_channel TEXT, 
	declared TEXT, 
	version INTEGER DEFAULT '1' NOT NULL, 
	created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL, 
	updated_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL, 
	CONSTRAINT pk_jobs PRIMARY KEY (job_id), 
	CONSTRAINT ck_jobs_catch_up CHECK (catch_up IN ('none', 'one', 'all')), 
	CONSTRAINT ck_jobs_overlap CHECK (overlap IN ('skip', 'queue', 'replace')), 
	CONSTRAINT ck_jobs_schedule_type CHECK (schedule_type IN ('cron', 'interval', 'calendar', 'immediate', 'event')), 
	CONSTRAINT ck_jobs_priority CHECK (priority IN (1, 2, 3)), 
	CONSTRAINT uq_jobs_name UNIQUE (name)
)
-- next
CREATE INDEX ix_jobs_domain ON jobs (domain) WHERE domain IS NOT NULL
-- next
CREATE INDEX ix_jobs_domain_config_id ON jobs (domain_config_id) WHERE domain_config_id IS NOT NULL
-- next
CREATE INDEX ix_jobs_next_run ON jobs (next_run) WHERE schedule_enabled AND NOT paused AND invalid_reason IS NULL AND scheduler_version = 2
-- next
CREATE TABLE leases (
	name TEXT NOT NULL, 
	holder TEXT NOT NULL, 
	term BIGINT DEFAULT '1' NOT NULL, 
	lease_until TIMESTAMP WITH TIME ZONE NOT NULL, 
	CONSTRAINT pk_leases PRIMARY KEY (name)
)
-- next
CREATE TABLE limits (
	key TEXT NOT NULL, 
	until TIMESTAMP WITH TIME ZONE NOT NULL, 
	reason TEXT NOT NULL, 
	hits INTEGER DEFAULT '1' NOT NULL, 
	updated_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL, 
	CONSTRAINT pk_limits PRIMARY KEY (key)
)
-- next
CREATE TABLE outbox (
	seq BIGINT GENERATED BY DEFAULT AS IDENTITY, 
	stream TEXT NOT NULL, 
	key TEXT NOT NULL, 
	revision INTEGER NOT NULL, 
	created_at TIMESTAMP WITH TIME ZONE NOT NULL, 
	position BIGINT, 
	sent_at TIMESTAMP WITH TIME ZONE, 
	CONSTRAINT pk_outbox PRIMARY KEY (seq)
)
-- next
CREATE UNIQUE INDEX ix_outbox_position ON outbox (position) WHERE position IS NOT NULL
-- next
CREATE INDEX ix_outbox_unsent ON outbox (seq) WHERE sent_at IS NULL
-- next
CREATE TABLE watermarks (
	stream TEXT NOT NULL, 
	value JSONB, 
	fence BIGINT DEFAULT '0' NOT NULL, 
	holder VARCHAR(36), 
	lease_until TIMESTAMP WITH TIME ZONE, 
	high_water JSONB, 
	moved_at TIMESTAMP WITH TIME ZONE, 
	last_parsed_at TIMESTAMP WITH TIME ZONE, 
	last_checked_at TIMESTAMP WITH TIME ZONE, 
	CONSTRAINT pk_watermarks PRIMARY KEY (stream)
)
-- next
CREATE TABLE workers (
	worker TEXT NOT NULL, 
	role TEXT NOT NULL, 
	hostname TEXT NOT NULL, 
	pid INTEGER NOT NULL, 
	slots INTEGER DEFAULT '0' NOT NULL, 
	busy INTEGER DEFAULT '0' NOT NULL, 
	draining BOOLEAN DEFAULT false NOT NULL, 
	started_at TIMESTAMP WITH TIME ZONE NOT NULL, 
	seen_until TIMESTAMP WITH TIME ZONE NOT NULL, 
	CONSTRAINT pk_workers PRIMARY KEY (worker)
)
-- next
CREATE TABLE job_dependencies (
	job_id VARCHAR(36) NOT NULL, 
	depends_on VARCHAR(36) NOT NULL, 
	CONSTRAINT pk_job_dependencies PRIMARY KEY (job_id, depends_on), 
	CONSTRAINT ck_job_dependencies_not_itself CHECK (job_id <> depends_on), 
	CONSTRAINT fk_job_dependencies_depends_on FOREIGN KEY(depends_on) REFERENCES jobs (job_id) ON DELETE CASCADE, 
	CONSTRAINT fk_job_dependencies_job_id FOREIGN KEY(job_id) REFERENCES jobs (job_id) ON DELETE CASCADE
)
-- next
CREATE INDEX ix_job_dependencies_depends_on ON job_dependencies (depends_on)
-- next
CREATE FUNCTION floodmark_watch_when() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF NEW.schedule_type IS DISTINCT FROM OLD.schedule_type OR NEW.cron_expression IS DISTINCT FROM OLD.cron_expression OR NEW.interval_seconds IS DISTINCT FROM OLD.interval_seconds OR NEW.frequency IS DISTINCT FROM OLD.frequency OR NEW.time_config IS DISTINCT FROM OLD.time_config OR NEW.timezone IS DISTINCT FROM OLD.timezone OR NEW.schedule_enabled IS DISTINCT FROM OLD.schedule_enabled OR NEW.paused IS DISTINCT FROM OLD.paused OR NEW.scheduler_version IS DISTINCT FROM OLD.scheduler_version THEN
                NEW.next_run := NULL;
                NEW.planned_until := clock_timestamp();
                NEW.invalid_reason := NULL;
                NEW.version := OLD.version + 1;
                NEW.updated_at := clock_timestamp();
            END IF;
            RETURN NEW;
        END $$
-- next
CREATE TRIGGER floodmark_watch_when BEFORE UPDATE OF schedule_type, cron_expression, interval_seconds, frequency, time_config, timezone, schedule_enabled, paused, scheduler_version ON jobs
        FOR EACH ROW EXECUTE FUNCTION floodmark_watch_when()
-- next
CREATE FUNCTION floodmark_tell_jobs() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            PERFORM pg_notify('floodmark', 'jobs');
            RETURN NULL;
        END $$
-- next
CREATE TRIGGER floodmark_tell_jobs AFTER INSERT OR DELETE OR UPDATE OF schedule_type, cron_expression, interval_seconds, frequency, time_config, timezone, schedule_enabled, paused, scheduler_version ON jobs
        FOR EACH STATEMENT EXECUTE FUNCTION floodmark_tell_jobs()
-- next
ALTER TABLE jobs SET (fillfactor = 60)
-- next
ALTER TABLE watermarks SET (fillfactor = 50)
-- next
CREATE TABLE accounts (
	name TEXT NOT NULL, 
	kind TEXT DEFAULT 'telegram' NOT NULL, 
	api_id BIGINT NOT NULL, 
	secrets TEXT NOT NULL, 
	phone TEXT, 
	tenant_id TEXT, 
	user_id TEXT, 
	state TEXT DEFAULT 'active' NOT NULL, 
	reason TEXT, 
	holder TEXT, 
	lease_until TIMESTAMP WITH TIME ZONE, 
	last_used_at TIMESTAMP WITH TIME ZONE, 
	created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL, 
	updated_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL, 
	CONSTRAINT pk_accounts PRIMARY KEY (name), 
	CONSTRAINT ck_accounts_state CHECK (state IN ('active', 'parked'))
)
-- next
CREATE TABLE breakers (
	key TEXT NOT NULL, 
	state TEXT DEFAULT 'closed' NOT NULL, 
	failures INTEGER DEFAULT '0' NOT NULL, 
	window_began TIMESTAMP WITH TIME ZONE, 
	failed_at JSONB, 
	open_until TIMESTAMP WITH TIME ZONE, 
	probe_until TIMESTAMP WITH TIME ZONE, 
	trips INTEGER DEFAULT '0' NOT NULL, 
	reason TEXT, 
	updated_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL, 
	CONSTRAINT pk_breakers PRIMARY KEY (key), 
	CONSTRAINT ck_breakers_state CHECK (state IN ('closed', 'open', 'half-open'))
)
-- next
CREATE TABLE telegram_channels (
	account TEXT NOT NULL, 
	channel_id BIGINT NOT NULL, 
	access_hash BIGINT NOT NULL, 
	username TEXT, 
	title TEXT, 
	updated_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL, 
	CONSTRAINT pk_telegram_channels PRIMARY KEY (account, channel_id)
)
-- next
CREATE INDEX ix_telegram_channels_username ON telegram_channels (username)
-- next
ALTER TABLE limits ADD COLUMN rate FLOAT
-- next
ALTER TABLE watermarks ADD COLUMN items_stream TEXT
-- next
CREATE INDEX ix_items_stream_occurred_at ON items (stream, occurred_at) WHERE occurred_at IS NOT NULL
-- next
CREATE VIEW posts AS
SELECT (data->>'channel_id')::bigint AS channel_id, (data->>'id')::bigint AS message_id, occurred_at AS date, data->>'text' AS text,
       (data->>'views')::bigint AS views, (data->>'forwards')::bigint AS forwards, data->>'edit_date' AS edit_date, data->>'grouped_id' AS grouped_id,
       revision, deleted, collected_at, tenant_id, user_id, stream, key, data
  FROM items WHERE stream LIKE 'telegram:%'
-- next
CREATE TABLE tokens (
	token_id VARCHAR(36) NOT NULL, 
	name TEXT NOT NULL, 
	role TEXT NOT NULL, 
	digest TEXT NOT NULL, 
	created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL, 
	last_used_at TIMESTAMP WITH TIME ZONE, 
	expires_at TIMESTAMP WITH TIME ZONE, 
	revoked_at TIMESTAMP WITH TIME ZONE, 
	CONSTRAINT pk_tokens PRIMARY KEY (token_id), 
	CONSTRAINT ck_tokens_role CHECK (role IN ('read', 'operate', 'admin')), 
	CONSTRAINT uq_tokens_name UNIQUE (name)
)
-- next
CREATE TABLE audit (
	seq BIGINT GENERATED BY DEFAULT AS IDENTITY, 
	at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL, 
	who TEXT NOT NULL, 
	via TEXT NOT NULL, 
	action TEXT NOT NULL, 
	object TEXT NOT NULL, 
	before JSONB, 
	after JSONB, 
	request_id TEXT, 
	CONSTRAINT pk_audit PRIMARY KEY (seq)
)
-- next
CREATE INDEX ix_audit_object ON audit (object, seq)
-- next
CREATE TABLE idempotency_keys (
	key TEXT NOT NULL, 
	fingerprint TEXT NOT NULL, 
	answer JSONB, 
	created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL, 
	CONSTRAINT pk_idempotency_keys PRIMARY KEY (key)
)
-- next
CREATE TABLE triggers (
	trigger_id VARCHAR(36) NOT NULL, 
	kind TEXT NOT NULL, 
	pattern TEXT NOT NULL, 
	jobs JSONB DEFAULT '[]' NOT NULL, 
	params JSONB DEFAULT '{}' NOT NULL, 
	secret TEXT, 
	debounce_seconds FLOAT DEFAULT '0' NOT NULL, 
	enabled BOOLEAN DEFAULT true NOT NULL, 
	fired BIGINT DEFAULT '0' NOT NULL, 
	matched BIGINT DEFAULT '0' NOT NULL, 
	refused BIGINT DEFAULT '0' NOT NULL, 
	refusals JSONB DEFAULT '{}' NOT NULL, 
	last_fired_at TIMESTAMP WITH TIME ZONE, 
	last_refused_at TIMESTAMP WITH TIME ZONE, 
	last_refusal TEXT, 
	created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL, 
	updated_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL, 
	CONSTRAINT pk_triggers PRIMARY KEY (trigger_id), 
	CONSTRAINT ck_triggers_kind CHECK (kind IN ('webhook', 'channel', 'stream')), 
	CONSTRAINT uq_triggers_kind_pattern UNIQUE (kind, pattern)
)
-- next
CREATE TABLE trigger_deliveries (
	trigger_id VARCHAR(36) NOT NULL, 
	delivery_id TEXT NOT NULL, 
	signature TEXT, 
	subject TEXT NOT NULL, 
	received_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL, 
	fires_at TIMESTAMP WITH TIME ZONE, 
	answer JSONB DEFAULT '{}' NOT NULL, 
	CONSTRAINT pk_trigger_deliveries PRIMARY KEY (trigger_id, delivery_id), 
	CONSTRAINT uq_trigger_deliveries_trigger_id_signature UNIQUE (trigger_id, signature)
)
-- next
CREATE INDEX ix_trigger_deliveries_received_at ON trigger_deliveries (received_at)
-- next
CREATE INDEX ix_trigger_deliveries_fires_at ON trigger_deliveries (trigger_id, fires_at) WHERE fires_at IS NOT NULL
-- next
CREATE INDEX ix_jobs_trigger_webhook ON jobs (trigger_webhook) WHERE trigger_webhook IS NOT NULL
-- next
CREATE INDEX ix_jobs_trigger_channel ON jobs (trigger_channel) WHERE trigger_channel IS NOT NULL
-- next
CREATE TABLE shadow_fires (
	job_id VARCHAR(36) NOT NULL, 
	scheduled_for TIMESTAMP WITH TIME ZONE NOT NULL, 
	recorded_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL, 
	CONSTRAINT pk_shadow_fires PRIMARY KEY (job_id, scheduled_for)
)
-- next
CREATE TABLE pages (
	stream TEXT NOT NULL, 
	url TEXT NOT NULL, 
	depth INTEGER DEFAULT '0' NOT NULL, 
	place BIGINT DEFAULT '0' NOT NULL, 
	crawl INTEGER DEFAULT '0' NOT NULL, 
	status INTEGER, 
	etag TEXT, 
	last_modified TEXT, 
	content_hash TEXT, 
	misses INTEGER DEFAULT '0' NOT NULL, 
	note TEXT, 
	visited_at TIMESTAMP WITH TIME ZONE, 
	CONSTRAINT pk_pages PRIMARY KEY (stream, url)
)
-- next
CREATE INDEX ix_pages_frontier ON pages (stream, crawl, depth, place)
-- next
CREATE INDEX ix_pages_content ON pages (stream, content_hash) WHERE content_hash IS NOT NULL
-- next
CREATE TABLE blobs (
	sha256 VARCHAR(64) NOT NULL, 
	media_type TEXT NOT NULL, 
	size BIGINT NOT NULL, 
	content BYTEA NOT NULL, 
	kept_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL, 
	CONSTRAINT pk_blobs PRIMARY KEY (sha256)
)
-- next
CREATE INDEX ix_blobs_kept_at ON blobs (kept_at)
-- next
ALTER TABLE outbox ADD COLUMN traceparent TEXT
-- next
ALTER TABLE job_executions RENAME TO executions
-- next
ALTER TABLE jobs ADD COLUMN id VARCHAR(36) GENERATED ALWAYS AS (job_id)
-- next
CREATE TABLE scan_profiles (
	profile_id VARCHAR(36) DEFAULT md5(random()::text || clock_timestamp()::text) NOT NULL, 
	name TEXT, 
	description TEXT, 
	params JSONB DEFAULT '{}' NOT NULL, 
	created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL, 
	updated_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL, 
	CONSTRAINT pk_scan_profiles PRIMARY KEY (profile_id)
)
-- next
CREATE VIEW schedules AS
        SELECT job_id AS schedule_id, domain_config_id, COALESCE(domain, target) AS domain, profile_id,
               COALESCE(frequency, schedule_type) AS frequency, COALESCE(time_config, '{}'::jsonb) AS time_config,
               (schedule_enabled AND NOT paused) AS enabled,
               CASE WHEN next_run < '9999-01-01' THEN next_run END AS next_run,
               last_run, CASE last_status WHEN 'queued' THEN 'pending' WHEN 'waiting' THEN 'pending' WHEN 'done' THEN 'success' WHEN 'dead' THEN 'failed' ELSE last_status END AS last_status, created_at, updated_at
          FROM jobs WHERE source = 'cookies' OR domain IS NOT NULL
-- next
CREATE VIEW job_executions AS
        SELECT e.execution_id, e.job_id AS schedule_id, e.job_id,
               COALESCE(j.domain, CASE WHEN j.source = 'cookies' THEN j.target END) AS domain, j.domain_config_id,
               CASE e.state WHEN 'queued' THEN 'pending' WHEN 'waiting' THEN 'pending' WHEN 'done' THEN 'success' WHEN 'dead' THEN 'failed' ELSE e.state END AS status, e.state,
               COALESCE(e.result ->> 'scan_id', CASE WHEN j.source = 'cookies' AND e.state = 'done' THEN e.execution_id END)
               AS scan_id,
               e.result AS metadata, e.result, e.completed_at, e.created_at, e.job_name, e.scheduled_for, e.priority, e.trigger, e.params, e.attempt, e.rescues, e.coalesced, e.reason, e.hold, e.not_before, e.queue_rank, e.lease_until, e.worker, e.fence, e.cancel_requested, e.started_at, e.duration_seconds, e.items_new, e.items_changed, e.items_known, e.error_message, e.error_details, e.traceparent
          FROM executions e LEFT JOIN jobs j ON j.job_id = e.job_id
-- next
CREATE FUNCTION floodmark_write_schedule() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF TG_OP = 'DELETE' THEN
            DELETE FROM jobs WHERE job_id = OLD.schedule_id;
            RETURN OLD;
        ELSIF TG_OP = 'UPDATE' THEN
            IF NEW.last_run IS DISTINCT FROM OLD.last_run OR NEW.last_status IS DISTINCT FROM OLD.last_status THEN
                RAISE EXCEPTION 'last_run and last_status are written by Floodmark: leave them out';
            END IF;
            UPDATE jobs SET domain = CASE WHEN NEW.domain IS DISTINCT FROM OLD.domain THEN lower(NEW.domain) ELSE domain END, target = CASE WHEN NEW.domain IS DISTINCT FROM OLD.domain THEN CASE WHEN source = 'cookies' THEN lower(NEW.domain) ELSE target END ELSE target END, domain_config_id = NEW.domain_config_id, profile_id = NEW.profile_id, schedule_type = CASE WHEN NEW.frequency IS DISTINCT FROM OLD.frequency THEN 'calendar' ELSE schedule_type END, frequency = CASE WHEN NEW.frequency IS DISTINCT FROM OLD.frequency THEN NEW.frequency ELSE frequency END, time_config = CASE WHEN NEW.time_config IS DISTINCT FROM OLD.time_config THEN NEW.time_config ELSE time_config END, schedule_enabled = CASE WHEN NEW.enabled IS DISTINCT FROM OLD.enabled THEN NEW.enabled ELSE schedule_enabled END, paused = CASE WHEN NEW.enabled IS DISTINCT FROM OLD.enabled THEN (paused AND NOT NEW.enabled) ELSE paused END, pause_reason = CASE WHEN NEW.enabled IS DISTINCT FROM OLD.enabled THEN CASE WHEN NOT NEW.enabled THEN pause_reason END ELSE pause_reason END, next_run = CASE WHEN NEW.next_run IS DISTINCT FROM OLD.next_run THEN NEW.next_run ELSE next_run END, version = version + 1, updated_at = clock_timestamp() WHERE job_id = OLD.schedule_id;
        ELSE
            IF NEW.domain IS NULL THEN
                RAISE EXCEPTION 'a schedule needs a domain';
            END IF;
            NEW.schedule_id := COALESCE(NEW.schedule_id, md5(random()::text || clock_timestamp()::text));
            INSERT INTO jobs (job_id, name, source, target, domain, domain_config_id, profile_id, schedule_type, frequency, time_config, schedule_enabled, next_run, created_at) VALUES (NEW.schedule_id, 'cookies-' || replace(lower(NEW.domain), '.', '-') || CASE WHEN EXISTS (SELECT 1 FROM jobs WHERE name = 'cookies-' || replace(lower(NEW.domain), '.', '-')) THEN '-' || substr(NEW.schedule_id, 1, 12) ELSE '' END, 'cookies', lower(NEW.domain), lower(NEW.domain), NEW.domain_config_id, NEW.profile_id, 'calendar', NEW.frequency, COALESCE(NEW.time_config, '{}'::jsonb), COALESCE(NEW.enabled, TRUE), NEW.next_run, COALESCE(NEW.created_at, clock_timestamp()));
        END IF;
        RETURN NEW;
    END $$
-- next
CREATE TRIGGER floodmark_write_schedule INSTEAD OF INSERT OR UPDATE OR DELETE ON schedules
    FOR EACH ROW EXECUTE FUNCTION floodmark_write_schedule()
-- next
CREATE FUNCTION floodmark_write_execution() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF TG_OP = 'DELETE' THEN
            DELETE FROM executions WHERE execution_id = OLD.execution_id;
            RETURN OLD;
        ELSIF TG_OP = 'UPDATE' THEN
            IF NEW.domain IS DISTINCT FROM OLD.domain OR NEW.domain_config_id IS DISTINCT FROM OLD.domain_config_id THEN
                RAISE EXCEPTION 'domain and domain_config_id belong to the schedule: change them there';
            END IF;
            UPDATE executions SET job_name = NEW.job_name, scheduled_for = NEW.scheduled_for, priority = NEW.priority, trigger = NEW.trigger, params = NEW.params, attempt = NEW.attempt, rescues = NEW.rescues, coalesced = NEW.coalesced, reason = NEW.reason, hold = NEW.hold, not_before = NEW.not_before, queue_rank = NEW.queue_rank, lease_until = NEW.lease_until, worker = NEW.worker, fence = NEW.fence, cancel_requested = NEW.cancel_requested, started_at = NEW.started_at, duration_seconds = NEW.duration_seconds, items_new = NEW.items_new, items_changed = NEW.items_changed, items_known = NEW.items_known, error_message = NEW.error_message, error_details = NEW.error_details, traceparent = NEW.traceparent, job_id = CASE WHEN NEW.schedule_id IS DISTINCT FROM OLD.schedule_id THEN NEW.schedule_id ELSE NEW.job_id END, state = CASE WHEN NEW.status IS DISTINCT FROM OLD.status THEN CASE NEW.status WHEN 'pending' THEN 'queued' WHEN 'success' THEN 'done' WHEN 'successful' THEN 'done' WHEN 'succeeded' THEN 'done' WHEN 'completed' THEN 'done' WHEN 'failed' THEN 'dead' WHEN 'failure' THEN 'dead' WHEN 'error' THEN 'dead' WHEN 'canceled' THEN 'cancelled' ELSE NEW.status END ELSE NEW.state END, completed_at = COALESCE(NEW.completed_at, CASE WHEN (CASE WHEN NEW.status IS DISTINCT FROM OLD.status THEN CASE NEW.status WHEN 'pending' THEN 'queued' WHEN 'success' THEN 'done' WHEN 'successful' THEN 'done' WHEN 'succeeded' THEN 'done' WHEN 'completed' THEN 'done' WHEN 'failed' THEN 'dead' WHEN 'failure' THEN 'dead' WHEN 'error' THEN 'dead' WHEN 'canceled' THEN 'cancelled' ELSE NEW.status END ELSE NEW.state END) IN ('done', 'dead', 'cancelled', 'skipped') THEN clock_timestamp() END), result = CASE WHEN NEW.metadata IS DISTINCT FROM OLD.metadata THEN NEW.metadata ELSE NEW.result END WHERE execution_id = OLD.execution_id;
        ELSE
            NEW.execution_id := COALESCE(NEW.execution_id, md5(random()::text || clock_timestamp()::text));
            INSERT INTO executions (job_name, scheduled_for, priority, trigger, params, attempt, rescues, coalesced, reason, hold, not_before, queue_rank, lease_until, worker, fence, cancel_requested, started_at, duration_seconds, items_new, items_changed, items_known, error_message, error_details, traceparent, execution_id, job_id, state, completed_at, result, created_at) VALUES (COALESCE(NEW.job_name, (SELECT name FROM jobs WHERE job_id = COALESCE(NEW.schedule_id, NEW.job_id)),
                        NEW.domain, NEW.schedule_id, NEW.job_id), COALESCE(NEW.scheduled_for, NEW.started_at, clock_timestamp()), COALESCE(NEW.priority, 2), COALESCE(NEW.trigger, 'schedule'), NEW.params, COALESCE(NEW.attempt, 0), COALESCE(NEW.rescues, 0), COALESCE(NEW.coalesced, 0), NEW.reason, NEW.hold, NEW.not_before, NEW.queue_rank, NEW.lease_until, NEW.worker, NEW.fence, NEW.cancel_requested, NEW.started_at, NEW.duration_seconds, COALESCE(NEW.items_new, 0), COALESCE(NEW.items_changed, 0), COALESCE(NEW.items_known, 0), NEW.error_message, NEW.error_details, NEW.traceparent, NEW.execution_id, COALESCE(NEW.schedule_id, NEW.job_id), CASE COALESCE(NEW.status, NEW.state) WHEN 'pending' THEN 'queued' WHEN 'success' THEN 'done' WHEN 'successful' THEN 'done' WHEN 'succeeded' THEN 'done' WHEN 'completed' THEN 'done' WHEN 'failed' THEN 'dead' WHEN 'failure' THEN 'dead' WHEN 'error' THEN 'dead' WHEN 'canceled' THEN 'cancelled' ELSE COALESCE(NEW.status, NEW.state) END, COALESCE(NEW.completed_at, CASE WHEN (CASE COALESCE(NEW.status, NEW.state) WHEN 'pending' THEN 'queued' WHEN 'success' THEN 'done' WHEN 'successful' THEN 'done' WHEN 'succeeded' THEN 'done' WHEN 'completed' THEN 'done' WHEN 'failed' THEN 'dead' WHEN 'failure' THEN 'dead' WHEN 'error' THEN 'dead' WHEN 'canceled' THEN 'cancelled' ELSE COALESCE(NEW.status, NEW.state) END) IN ('done', 'dead', 'cancelled', 'skipped') THEN clock_timestamp() END), CASE WHEN NEW.scan_id IS NULL THEN COALESCE(NEW.metadata, NEW.result)
    ELSE COALESCE(NEW.metadata, NEW.result, '{}'::jsonb) || jsonb_build_object('scan_id', NEW.scan_id) END, COALESCE(NEW.created_at, clock_timestamp()));
        END IF;
        RETURN NEW;
    END $$
-- next
CREATE TRIGGER floodmark_write_execution INSTEAD OF INSERT OR UPDATE OR DELETE ON job_executions
    FOR EACH ROW EXECUTE FUNCTION floodmark_write_execution()
-- next
ALTER TABLE leases ADD COLUMN yields BOOLEAN DEFAULT false NOT NULL
-- next
DROP INDEX ix_job_executions_active
-- next
CREATE INDEX ix_job_executions_active ON executions (job_id, hold) WHERE completed_at IS NULL
-- next
CREATE INDEX ix_job_executions_held ON executions (hold, job_id, scheduled_for) WHERE state = 'waiting' AND hold IS NOT NULL
-- next
ALTER TABLE workers ADD COLUMN lock_file TEXT
-- next
ALTER TABLE workers ADD COLUMN lock_key BIGINT
-- next
ALTER TABLE workers ADD COLUMN died_at TIMESTAMP WITH TIME ZONE
-- next
CREATE INDEX ix_jobs_stream ON jobs (stream) WHERE stream IS NOT NULL
-- next
CREATE INDEX ix_jobs_target ON jobs (target, source)
-- next
CREATE TABLE budgets (
	name TEXT NOT NULL, 
	requests FLOAT NOT NULL, 
	period TEXT DEFAULT 'minute' NOT NULL, 
	max_delay_seconds FLOAT, 
	fairness FLOAT DEFAULT '0.25' NOT NULL, 
	next_free TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL, 
	interval_seconds FLOAT NOT NULL, 
	sources INTEGER DEFAULT '0' NOT NULL, 
	price FLOAT, 
	habits JSONB, 
	measured_at TIMESTAMP WITH TIME ZONE, 
	version INTEGER DEFAULT '1' NOT NULL, 
	created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL, 
	updated_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL, 
	CONSTRAINT pk_budgets PRIMARY KEY (name), 
	CONSTRAINT ck_budgets_period CHECK (period = 'minute' OR period = 'week'), 
	CONSTRAINT ck_budgets_requests CHECK (requests > 0)
)
-- next
CREATE TABLE budget_grants (
	execution_id VARCHAR(36) NOT NULL, 
	budget TEXT NOT NULL, 
	granted_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL, 
	CONSTRAINT pk_budget_grants PRIMARY KEY (execution_id)
)
-- next
CREATE INDEX ix_budget_grants_budget ON budget_grants (budget)
-- next
CREATE TABLE budget_hours (
	budget TEXT NOT NULL, 
	hour TIMESTAMP WITH TIME ZONE NOT NULL, 
	requests INTEGER DEFAULT '0' NOT NULL, 
	CONSTRAINT pk_budget_hours PRIMARY KEY (budget, hour)
)
-- next
CREATE TABLE activity (
	job_id VARCHAR(36) NOT NULL, 
	learned BYTEA, 
	measured BYTEA, 
	polled_at TIMESTAMP WITH TIME ZONE NOT NULL, 
	CONSTRAINT pk_activity PRIMARY KEY (job_id), 
	CONSTRAINT fk_activity_job_id FOREIGN KEY(job_id) REFERENCES jobs (job_id) ON DELETE CASCADE
)
-- next
ALTER TABLE jobs ADD COLUMN budget TEXT
-- next
ALTER TABLE jobs ADD COLUMN max_delay_seconds FLOAT
-- next
ALTER TABLE jobs ADD COLUMN weight FLOAT DEFAULT '1.0' NOT NULL
-- next
ALTER TABLE jobs ADD COLUMN hinted_at TIMESTAMP WITH TIME ZONE
-- next
ALTER TABLE jobs DROP CONSTRAINT ck_jobs_schedule_type
-- next
ALTER TABLE jobs ADD CONSTRAINT ck_jobs_schedule_type CHECK (schedule_type IN ('cron', 'interval', 'calendar', 'immediate', 'event', 'adaptive'))
-- next
DROP INDEX ix_jobs_next_run
-- next
CREATE INDEX ix_jobs_next_run ON jobs (next_run) WHERE schedule_enabled AND NOT paused AND invalid_reason IS NULL AND scheduler_version = 2 AND (schedule_type <> 'adaptive' OR next_run IS NULL)
-- next
CREATE INDEX ix_jobs_adaptive ON jobs (budget, next_run) WHERE schedule_enabled AND NOT paused AND invalid_reason IS NULL AND scheduler_version = 2 AND schedule_type = 'adaptive'
-- next
CREATE INDEX ix_jobs_hinted ON jobs (budget, hinted_at) WHERE hinted_at IS NOT NULL
-- next
DROP TRIGGER floodmark_watch_when ON jobs
-- next
DROP TRIGGER floodmark_tell_jobs ON jobs
-- next
CREATE OR REPLACE FUNCTION floodmark_watch_when() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF NEW.schedule_type IS DISTINCT FROM OLD.schedule_type OR NEW.cron_expression IS DISTINCT FROM OLD.cron_expression OR NEW.interval_seconds IS DISTINCT FROM OLD.interval_seconds OR NEW.frequency IS DISTINCT FROM OLD.frequency OR NEW.time_config IS DISTINCT FROM OLD.time_config OR NEW.timezone IS DISTINCT FROM OLD.timezone OR NEW.schedule_enabled IS DISTINCT FROM OLD.schedule_enabled OR NEW.paused IS DISTINCT FROM OLD.paused OR NEW.scheduler_version IS DISTINCT FROM OLD.scheduler_version OR NEW.budget IS DISTINCT FROM OLD.budget OR NEW.max_delay_seconds IS DISTINCT FROM OLD.max_delay_seconds OR NEW.weight IS DISTINCT FROM OLD.weight THEN
                NEW.next_run := NULL;
                NEW.planned_until := clock_timestamp();
                NEW.invalid_reason := NULL;
                NEW.version := OLD.version + 1;
                NEW.updated_at := clock_timestamp();
            END IF;
            RETURN NEW;
        END $$
-- next
CREATE TRIGGER floodmark_watch_when BEFORE UPDATE OF schedule_type, cron_expression, interval_seconds, frequency, time_config, timezone, schedule_enabled, paused, scheduler_version, budget, max_delay_seconds, weight ON jobs
        FOR EACH ROW EXECUTE FUNCTION floodmark_watch_when()
-- next
CREATE TRIGGER floodmark_tell_jobs AFTER INSERT OR DELETE OR UPDATE OF schedule_type, cron_expression, interval_seconds, frequency, time_config, timezone, schedule_enabled, paused, scheduler_version, budget, max_delay_seconds, weight ON jobs
        FOR EACH STATEMENT EXECUTE FUNCTION floodmark_tell_jobs()
-- next
ALTER TABLE triggers ADD COLUMN hinted BIGINT DEFAULT '0' NOT NULL
-- next
CREATE TABLE feed_subscriptions (
	target TEXT NOT NULL, 
	hub TEXT NOT NULL, 
	topic TEXT NOT NULL, 
	callback TEXT NOT NULL, 
	secret TEXT, 
	state TEXT DEFAULT 'found' NOT NULL, 
	tries INTEGER DEFAULT '0' NOT NULL, 
	due_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL, 
	asked_at TIMESTAMP WITH TIME ZONE, 
	expires_at TIMESTAMP WITH TIME ZONE, 
	last_error TEXT, 
	pushes BIGINT DEFAULT '0' NOT NULL, 
	last_push_at TIMESTAMP WITH TIME ZONE, 
	created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL, 
	CONSTRAINT pk_feed_subscriptions PRIMARY KEY (target), 
	CONSTRAINT ck_feed_subscriptions_state CHECK (state IN ('found', 'asked', 'active', 'leaving'))
)
-- next
CREATE UNIQUE INDEX ix_feed_subscriptions_callback ON feed_subscriptions (callback)
-- next
CREATE INDEX ix_feed_subscriptions_due_at ON feed_subscriptions (due_at)
-- next
CREATE TABLE consumers (
	name TEXT NOT NULL, 
	place TEXT, 
	position BIGINT NOT NULL, 
	state JSONB, 
	paused BOOLEAN DEFAULT false NOT NULL, 
	error TEXT, 
	failed_at TIMESTAMP WITH TIME ZONE, 
	moved_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL, 
	created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL, 
	CONSTRAINT pk_consumers PRIMARY KEY (name)
)
-- next
CREATE TABLE sessions (
	session_id VARCHAR(36) NOT NULL, 
	digest TEXT NOT NULL, 
	token_id VARCHAR(36) NOT NULL, 
	browser TEXT DEFAULT '' NOT NULL, 
	address TEXT DEFAULT '' NOT NULL, 
	created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL, 
	last_used_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL, 
	expires_at TIMESTAMP WITH TIME ZONE NOT NULL, 
	CONSTRAINT pk_sessions PRIMARY KEY (session_id), 
	CONSTRAINT fk_sessions_token_id FOREIGN KEY(token_id) REFERENCES tokens (token_id) ON DELETE CASCADE
)
-- next
CREATE INDEX ix_sessions_token_id ON sessions (token_id)
-- next
CREATE TABLE minutes (
	minute TIMESTAMP WITH TIME ZONE NOT NULL, 
	created INTEGER, 
	unfinished INTEGER DEFAULT '0' NOT NULL, 
	started INTEGER DEFAULT '0' NOT NULL, 
	lateness JSONB, 
	recount_at TIMESTAMP WITH TIME ZONE, 
	counted JSONB, 
	counted_at TIMESTAMP WITH TIME ZONE, 
	done INTEGER DEFAULT '0' NOT NULL, 
	dead INTEGER DEFAULT '0' NOT NULL, 
	cancelled INTEGER DEFAULT '0' NOT NULL, 
	skipped INTEGER DEFAULT '0' NOT NULL, 
	items_new INTEGER DEFAULT '0' NOT NULL, 
	items_changed INTEGER DEFAULT '0' NOT NULL, 
	queued INTEGER DEFAULT '0' NOT NULL, 
	CONSTRAINT pk_minutes PRIMARY KEY (minute)
)
-- next
CREATE INDEX ix_minutes_recount_at ON minutes (recount_at) WHERE recount_at IS NOT NULL
-- next
CREATE TABLE stream_days (
	stream TEXT NOT NULL, 
	day DATE NOT NULL, 
	"new" INTEGER DEFAULT '0' NOT NULL, 
	changed INTEGER DEFAULT '0' NOT NULL, 
	CONSTRAINT pk_stream_days PRIMARY KEY (stream, day)
)
-- next
CREATE INDEX ix_job_executions_exceptional ON executions (execution_id) WHERE state = 'dead' OR state = 'cancelled' OR state = 'skipped'
-- next
CREATE INDEX ix_jobs_account ON jobs (account, name) WHERE account IS NOT NULL
-- next
CREATE INDEX ix_jobs_declared ON jobs (declared) WHERE declared IS NOT NULL
-- next
CREATE INDEX ix_jobs_old ON jobs (job_id) WHERE scheduler_version <> 2
-- next
CREATE TABLE account_logins (
	login_id TEXT NOT NULL, 
	owner TEXT NOT NULL, 
	account TEXT NOT NULL, 
	step TEXT NOT NULL, 
	how TEXT NOT NULL, 
	tries INTEGER DEFAULT '0' NOT NULL, 
	secrets TEXT NOT NULL, 
	created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL, 
	expires_at TIMESTAMP WITH TIME ZONE NOT NULL, 
	CONSTRAINT pk_account_logins PRIMARY KEY (login_id), 
	CONSTRAINT ck_account_logins_step CHECK (step IN ('code', 'password'))
)
-- next
CREATE TABLE search_state (
	id SMALLINT NOT NULL, 
	value TEXT NOT NULL, 
	CONSTRAINT pk_search_state PRIMARY KEY (id), 
	CONSTRAINT ck_search_state_one_row CHECK (id = 1)
)
-- next
CREATE TABLE search_streams (
	stream_id INTEGER GENERATED BY DEFAULT AS IDENTITY, 
	stream TEXT NOT NULL, 
	CONSTRAINT pk_search_streams PRIMARY KEY (stream_id), 
	CONSTRAINT uq_search_streams_stream UNIQUE (stream)
)
-- next
CREATE TABLE search_fields (
	name TEXT NOT NULL, 
	CONSTRAINT pk_search_fields PRIMARY KEY (name)
)
-- next
CREATE TABLE search_documents (
	id BIGINT NOT NULL, 
	stream_id INTEGER NOT NULL, 
	key TEXT NOT NULL, 
	revision INTEGER NOT NULL, 
	hash BIGINT NOT NULL, 
	tokens TSVECTOR NOT NULL, 
	CONSTRAINT pk_search_documents PRIMARY KEY (id)
)
-- next
CREATE INDEX ix_search_documents_hash ON search_documents (hash)
-- next
CREATE INDEX ix_search_documents_tokens ON search_documents USING gin (tokens) WITH (gin_pending_list_limit = 512)
-- next
CREATE TABLE sinks (
	name TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	streams TEXT, 
	is_configured BOOLEAN DEFAULT true NOT NULL, 
	failures INTEGER DEFAULT '0' NOT NULL, 
	retry_at TIMESTAMP WITH TIME ZONE, 
	CONSTRAINT pk_sinks PRIMARY KEY (name)
)
-- next
CREATE TABLE sink_letters (
	sink TEXT NOT NULL, 
	position BIGINT NOT NULL, 
	stream TEXT NOT NULL, 
	key TEXT NOT NULL, 
	revision INTEGER NOT NULL, 
	error TEXT NOT NULL, 
	failed_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL, 
	is_retried BOOLEAN DEFAULT false NOT NULL, 
	CONSTRAINT pk_sink_letters PRIMARY KEY (sink, position)
)
-- next
CREATE INDEX ix_sink_letters_retried ON sink_letters (sink, position) WHERE is_retried
-- next
ALTER TABLE outbox ADD COLUMN existed TEXT
-- next
CREATE INDEX ix_watermarks_items_stream ON watermarks (items_stream) WHERE items_stream IS NOT NULL
-- next
CREATE TABLE watches (
	watch_id VARCHAR(36) NOT NULL, 
	name TEXT NOT NULL, 
	kind TEXT DEFAULT 'items' NOT NULL, 
	query TEXT, 
	pattern TEXT, 
	whole_word BOOLEAN DEFAULT false NOT NULL, 
	conditions JSONB DEFAULT '[]' NOT NULL, 
	streams JSONB DEFAULT '[]' NOT NULL, 
	sources JSONB DEFAULT '[]' NOT NULL, 
	tags JSONB DEFAULT '[]' NOT NULL, 
	channels JSONB DEFAULT '[]' NOT NULL, 
	threshold_count INTEGER, 
	threshold_seconds FLOAT, 
	digest TEXT, 
	quiet TEXT, 
	timezone TEXT DEFAULT 'UTC' NOT NULL, 
	cooldown_seconds FLOAT, 
	max_age_seconds FLOAT, 
	paused BOOLEAN DEFAULT false NOT NULL, 
	after_position BIGINT DEFAULT '0' NOT NULL, 
	active_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL, 
	generation BIGINT NOT NULL, 
	version INTEGER DEFAULT '1' NOT NULL, 
	created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL, 
	updated_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL, 
	CONSTRAINT pk_watches PRIMARY KEY (watch_id), 
	CONSTRAINT uq_watches_name UNIQUE (name)
)
-- next
CREATE INDEX ix_watches_generation ON watches (generation)
-- next
CREATE TABLE watch_counts (
	watch_id VARCHAR(36) NOT NULL, 
	matches BIGINT DEFAULT '0' NOT NULL, 
	suppressed BIGINT DEFAULT '0' NOT NULL, 
	last_match_at TIMESTAMP WITH TIME ZONE, 
	hour TIMESTAMP WITH TIME ZONE, 
	stored INTEGER DEFAULT '0' NOT NULL, 
	CONSTRAINT pk_watch_counts PRIMARY KEY (watch_id), 
	CONSTRAINT fk_watch_counts_watch_id FOREIGN KEY(watch_id) REFERENCES watches (watch_id) ON DELETE CASCADE
)
-- next
CREATE TABLE watch_matches (
	seq BIGINT GENERATED BY DEFAULT AS IDENTITY, 
	watch_id VARCHAR(36) NOT NULL, 
	event_id TEXT NOT NULL, 
	stream TEXT NOT NULL, 
	key TEXT, 
	revision INTEGER, 
	position BIGINT, 
	at TIMESTAMP WITH TIME ZONE NOT NULL, 
	is_due BOOLEAN NOT NULL, 
	title TEXT NOT NULL, 
	text TEXT NOT NULL, 
	url TEXT, 
	created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL, 
	CONSTRAINT pk_watch_matches PRIMARY KEY (seq), 
	CONSTRAINT fk_watch_matches_watch_id FOREIGN KEY(watch_id) REFERENCES watches (watch_id) ON DELETE CASCADE, 
	CONSTRAINT uq_watch_matches_event_id_watch_id UNIQUE (event_id, watch_id)
)
-- next
CREATE INDEX ix_watch_matches_watch_id_seq ON watch_matches (watch_id, seq)
-- next
CREATE INDEX ix_watch_matches_created_at ON watch_matches (created_at)
-- next
CREATE INDEX ix_watch_matches_counting ON watch_matches (watch_id, at) WHERE NOT is_due
-- next
CREATE TABLE watch_channels (
	watch_id VARCHAR(36) NOT NULL, 
	channel TEXT NOT NULL, 
	notified_seq BIGINT DEFAULT '0' NOT NULL, 
	waiting BIGINT DEFAULT '0' NOT NULL, 
	due_at TIMESTAMP WITH TIME ZONE, 
	notification_id VARCHAR(36), 
	sent_at TIMESTAMP WITH TIME ZONE, 
	CONSTRAINT pk_watch_channels PRIMARY KEY (watch_id, channel), 
	CONSTRAINT fk_watch_channels_watch_id FOREIGN KEY(watch_id) REFERENCES watches (watch_id) ON DELETE CASCADE
)
-- next
CREATE INDEX ix_watch_channels_due_at ON watch_channels (due_at) WHERE due_at IS NOT NULL AND notification_id IS NULL
-- next
CREATE TABLE watch_notifications (
	notification_id VARCHAR(36) NOT NULL, 
	watch_id VARCHAR(36) NOT NULL, 
	channel TEXT NOT NULL, 
	matches BIGINT NOT NULL, 
	message JSONB NOT NULL, 
	attempts INTEGER DEFAULT '0' NOT NULL, 
	try_at TIMESTAMP WITH TIME ZONE, 
	sent_at TIMESTAMP WITH TIME ZONE, 
	error TEXT, 
	created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL, 
	CONSTRAINT pk_watch_notifications PRIMARY KEY (notification_id), 
	CONSTRAINT fk_watch_notifications_watch_id FOREIGN KEY(watch_id) REFERENCES watches (watch_id) ON DELETE CASCADE
)
-- next
CREATE INDEX ix_watch_notifications_watch_id ON watch_notifications (watch_id, notification_id)
-- next
CREATE INDEX ix_watch_notifications_try_at ON watch_notifications (try_at) WHERE try_at IS NOT NULL
-- next
CREATE TABLE page_matches (
	stream TEXT NOT NULL, 
	url TEXT NOT NULL, 
	keys JSONB NOT NULL, 
	CONSTRAINT pk_page_matches PRIMARY KEY (stream, url)
)
-- next
CREATE TABLE telegram_engagement (
	stream TEXT NOT NULL, 
	key TEXT NOT NULL, 
	point INTEGER NOT NULL, 
	seen_at TIMESTAMP WITH TIME ZONE NOT NULL, 
	views BIGINT, 
	forwards BIGINT, 
	replies BIGINT, 
	reactions JSONB, 
	CONSTRAINT pk_telegram_engagement PRIMARY KEY (stream, key, point)
)
-- next
CREATE TABLE media (
	media_id TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	stream TEXT NOT NULL, 
	key TEXT NOT NULL, 
	channel_id BIGINT NOT NULL, 
	message_id BIGINT NOT NULL, 
	size BIGINT, 
	media_type TEXT, 
	filename TEXT, 
	state TEXT DEFAULT 'wanted' NOT NULL, 
	sha256 TEXT, 
	attempts INTEGER DEFAULT '0' NOT NULL, 
	try_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL, 
	error TEXT, 
	holder TEXT, 
	lease_until TIMESTAMP WITH TIME ZONE, 
	created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL, 
	stored_at TIMESTAMP WITH TIME ZONE, 
	CONSTRAINT pk_media PRIMARY KEY (media_id), 
	CONSTRAINT ck_media_state CHECK (state IN ('wanted', 'stored', 'skipped', 'failed', 'gone', 'pruned'))
)
-- next
CREATE INDEX ix_media_stream ON media (stream, media_id)
-- next
CREATE INDEX ix_media_state ON media (state, media_id)
-- next
CREATE INDEX ix_media_state_try_at ON media (state, try_at, media_id)
-- next
CREATE INDEX ix_media_state_sha256 ON media (state, sha256)
-- next
CREATE INDEX ix_media_sha256 ON media (sha256, state)
-- next
CREATE TABLE completeness (
	stream TEXT NOT NULL, 
	source TEXT NOT NULL, 
	value JSONB NOT NULL, 
	gaps INTEGER DEFAULT '0' NOT NULL, 
	updated_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL, 
	CONSTRAINT pk_completeness PRIMARY KEY (stream)
)
-- next
CREATE INDEX ix_completeness_gaps ON completeness (stream) WHERE gaps > 0
-- next
CREATE TABLE proof_links (
	stream TEXT NOT NULL, 
	number BIGINT NOT NULL, 
	day DATE NOT NULL, 
	count INTEGER NOT NULL, 
	entries BYTEA NOT NULL, 
	previous TEXT NOT NULL, 
	digest TEXT NOT NULL, 
	CONSTRAINT pk_proof_links PRIMARY KEY (stream, number)
)
-- next
ALTER TABLE accounts ADD COLUMN proxy TEXT
-- next
ALTER TABLE accounts ADD COLUMN takeout_id BIGINT
-- next
CREATE TABLE portfolio_reports (
	report_id BIGINT GENERATED BY DEFAULT AS IDENTITY, 
	made_at TIMESTAMP WITH TIME ZONE NOT NULL, 
	made_by TEXT NOT NULL, 
	format TEXT NOT NULL, 
	domains INTEGER NOT NULL, 
	findings INTEGER NOT NULL, 
	sha256 VARCHAR(64), 
	CONSTRAINT pk_portfolio_reports PRIMARY KEY (report_id)
)
-- next
CREATE TABLE portfolio_scans (
	report_id BIGINT NOT NULL, 
	stream TEXT NOT NULL, 
	scan TEXT NOT NULL, 
	CONSTRAINT pk_portfolio_scans PRIMARY KEY (report_id, stream)
)
-- next
CREATE TABLE secrets (
	name TEXT NOT NULL, 
	value TEXT NOT NULL, 
	created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL, 
	changed_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL, 
	CONSTRAINT pk_secrets PRIMARY KEY (name)
)
-- next
DROP INDEX ix_job_executions_exceptional
-- next
CREATE INDEX ix_job_executions_dead_ids ON executions (execution_id) WHERE state = 'dead'
-- next
CREATE INDEX ix_job_executions_cancelled ON executions (execution_id) WHERE state = 'cancelled'
-- next
CREATE INDEX ix_job_executions_skipped ON executions (execution_id) WHERE state = 'skipped'
-- next
CREATE INDEX ix_jobs_paused ON jobs (name) WHERE paused
-- next
CREATE INDEX ix_jobs_disabled ON jobs (name) WHERE NOT schedule_enabled
-- next
CREATE INDEX ix_items_stream_untimed ON items (stream, collected_at) WHERE occurred_at IS NULL
-- next
CREATE TABLE execution_hops (
	execution_id VARCHAR(36) NOT NULL, 
	hops INTEGER NOT NULL, 
	created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL, 
	CONSTRAINT pk_execution_hops PRIMARY KEY (execution_id)
)
-- next
CREATE INDEX ix_execution_hops_created_at ON execution_hops (created_at)
-- next
ALTER INDEX ix_search_documents_tokens RESET (gin_pending_list_limit)
-- next
CREATE INDEX ix_job_executions_rare_of_job ON executions (job_id, scheduled_for) WHERE state IN ('cancelled', 'dead', 'skipped')
-- next
CREATE INDEX ix_watermarks_cookie_scans ON watermarks (stream) WHERE substr(stream, 1, 8) = 'cookies:'
-- next
DROP INDEX ix_job_executions_held
-- next
CREATE INDEX ix_job_executions_held ON executions (hold, (job_id || '')) WHERE hold IS NOT NULL
-- next
DROP INDEX ix_job_executions_active
-- next
CREATE INDEX ix_job_executions_active ON executions ((job_id || ''), COALESCE(hold, ''), scheduled_for) WHERE completed_at IS NULL
-- next
CREATE INDEX ix_jobs_open_webhook ON jobs (trigger_webhook) WHERE rtrim(replace(replace(replace(COALESCE(trigger_webhook, ''), '*', ''), '{', ''), '//', ''), '/') <> COALESCE(trigger_webhook, '')
-- next
CREATE INDEX ix_jobs_open_channel ON jobs (trigger_channel) WHERE replace(replace(replace(COALESCE(trigger_channel, ''), '*', ''), '?', ''), '[', '') <> COALESCE(trigger_channel, '')
