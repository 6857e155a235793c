-- revision 0033
CREATE TABLE facts (
	name TEXT NOT NULL, 
	value JSON NOT NULL, 
	updated_at VARCHAR(32) DEFAULT (strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now')) NOT NULL, 
	CONSTRAINT pk_facts PRIMARY KEY (name)
)
-- next
CREATE TABLE item_revisions (
	stream TEXT NOT NULL, 
	"key" TEXT NOT NULL, 
	revision INTEGER NOT NULL, 
	occurred_at VARCHAR(32), 
	collected_at VARCHAR(32) NOT NULL, 
	data JSON NOT NULL, 
	content_hash TEXT NOT NULL, 
	deleted BOOLEAN DEFAULT 0 NOT NULL, 
	execution_id VARCHAR(36), 
	fence BIGINT NOT NULL, 
	CONSTRAINT pk_item_revisions PRIMARY KEY (stream, "key", revision)
)
 WITHOUT ROWID
-- next
CREATE TABLE items (
	stream TEXT NOT NULL, 
	"key" TEXT NOT NULL, 
	revision INTEGER DEFAULT '1' NOT NULL, 
	occurred_at VARCHAR(32), 
	collected_at VARCHAR(32) NOT NULL, 
	tenant_id TEXT, 
	user_id TEXT, 
	data JSON NOT NULL, 
	content_hash TEXT NOT NULL, 
	deleted BOOLEAN DEFAULT 0 NOT NULL, 
	execution_id VARCHAR(36), 
	fence BIGINT NOT NULL, 
	CONSTRAINT pk_items PRIMARY KEY (stream, "key")
)
 WITHOUT ROWID
-- next
CREATE TABLE "executions" (
	execution_id VARCHAR(36) NOT NULL, 
	job_id VARCHAR(36) NOT NULL, 
	job_name TEXT NOT NULL, 
	scheduled_for VARCHAR(32) NOT NULL, 
	state TEXT NOT NULL, 
	priority SMALLINT NOT NULL, 
	"trigger" TEXT DEFAULT 'schedule' NOT NULL, 
	params JSON, 
	attempt INTEGER DEFAULT '0' NOT NULL, 
	rescues INTEGER DEFAULT '0' NOT NULL, 
	coalesced INTEGER DEFAULT '0' NOT NULL, 
	reason TEXT, 
	hold TEXT, 
	not_before VARCHAR(32), 
	queue_rank VARCHAR(32), 
	lease_until VARCHAR(32), 
	worker TEXT, 
	fence BIGINT, 
	cancel_requested TEXT, 
	started_at VARCHAR(32), 
	completed_at VARCHAR(32), 
	duration_seconds FLOAT, 
	items_new INTEGER DEFAULT '0' NOT NULL, 
	items_changed INTEGER DEFAULT '0' NOT NULL, 
	items_known INTEGER DEFAULT '0' NOT NULL, 
	error_message TEXT, 
	error_details JSON, 
	result JSON, 
	traceparent TEXT, 
	created_at VARCHAR(32) DEFAULT (strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now')) NOT NULL, 
	CONSTRAINT pk_job_executions PRIMARY KEY (execution_id), 
	CONSTRAINT ck_job_executions_hold CHECK (hold = 'overlap' OR hold = 'dependency' OR hold = 'paused'), 
	CONSTRAINT ck_job_executions_state CHECK (state = 'queued' OR state = 'waiting' OR state = 'running' OR state = 'done' OR state = 'dead' OR state = 'cancelled' OR state = 'skipped'), 
	CONSTRAINT uq_job_executions_job_id_scheduled_for UNIQUE (job_id, scheduled_for)
)
-- next
CREATE INDEX ix_job_executions_dead ON "executions" (completed_at) WHERE state = 'dead'
-- next
CREATE INDEX ix_job_executions_queued ON "executions" (queue_rank) WHERE state = 'queued'
-- next
CREATE INDEX ix_job_executions_running ON "executions" (lease_until) WHERE state = 'running'
-- next
CREATE INDEX ix_job_executions_waiting ON "executions" (not_before) WHERE state = 'waiting'
-- next
CREATE TABLE jobs (
	job_id VARCHAR(36) DEFAULT (lower(hex(randomblob(16)))) NOT NULL, 
	name TEXT NOT NULL, 
	source TEXT DEFAULT 'python' NOT NULL, 
	target TEXT NOT NULL, 
	stream TEXT, 
	params JSON DEFAULT '{}' NOT NULL, 
	tags JSON DEFAULT '[]' NOT NULL, 
	schedule_type TEXT DEFAULT 'interval' NOT NULL, 
	cron_expression TEXT, 
	interval_seconds FLOAT, 
	frequency TEXT, 
	time_config JSON, 
	timezone TEXT DEFAULT 'UTC' NOT NULL, 
	schedule_enabled BOOLEAN DEFAULT 1 NOT NULL, 
	paused BOOLEAN DEFAULT 0 NOT NULL, 
	pause_reason TEXT, 
	invalid_reason TEXT, 
	scheduler_version SMALLINT DEFAULT '2' NOT NULL, 
	priority SMALLINT DEFAULT '2' NOT NULL, 
	timeout_seconds FLOAT DEFAULT '3600' NOT NULL, 
	retry_max INTEGER DEFAULT '3' NOT NULL, 
	overlap TEXT DEFAULT 'skip' NOT NULL, 
	max_instances INTEGER DEFAULT '1' NOT NULL, 
	coalesce BOOLEAN DEFAULT 1 NOT NULL, 
	misfire_grace_seconds FLOAT DEFAULT '300' NOT NULL, 
	catch_up TEXT DEFAULT 'one' NOT NULL, 
	jitter_seconds FLOAT DEFAULT '0' NOT NULL, 
	limit_key TEXT, 
	account TEXT, 
	next_run VARCHAR(32), 
	planned_until VARCHAR(32), 
	last_run VARCHAR(32), 
	last_success VARCHAR(32), 
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
	created_at VARCHAR(32) DEFAULT (strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now')) NOT NULL, 
	updated_at VARCHAR(32) DEFAULT (strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now')) NOT NULL, id VARCHAR(36) GENERATED ALWAYS AS (job_id), budget TEXT, max_delay_seconds FLOAT, weight FLOAT DEFAULT '1.0' NOT NULL, hinted_at VARCHAR(32), 
	CONSTRAINT pk_jobs PRIMARY KEY (job_id), 
	CONSTRAINT ck_jobs_catch_up CHECK (catch_up IN ('none', 'one', 'all')), 
	CONSTRAINT ck_jobs_overlap CHECK (overlap IN ('skip', 'queue', 'replace')), 
	CONSTRAINT ck_jobs_schedule_type CHECK (schedule_type IN ('cron', 'interval', 'calendar', 'immediate', 'event', 'adaptive')), 
	CONSTRAINT ck_jobs_priority CHECK (priority IN (1, 2, 3)), 
	CONSTRAINT uq_jobs_name UNIQUE (name)
)
-- next
CREATE INDEX ix_jobs_domain ON jobs (domain) WHERE domain IS NOT NULL
-- next
CREATE INDEX ix_jobs_domain_config_id ON jobs (domain_config_id) WHERE domain_config_id IS NOT NULL
-- next
CREATE TABLE leases (
	name TEXT NOT NULL, 
	holder TEXT NOT NULL, 
	term BIGINT DEFAULT '1' NOT NULL, 
	lease_until VARCHAR(32) NOT NULL, yields BOOLEAN DEFAULT 0 NOT NULL, 
	CONSTRAINT pk_leases PRIMARY KEY (name)
)
-- next
CREATE TABLE limits (
	"key" TEXT NOT NULL, 
	until VARCHAR(32) NOT NULL, 
	reason TEXT NOT NULL, 
	hits INTEGER DEFAULT '1' NOT NULL, 
	updated_at VARCHAR(32) DEFAULT (strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now')) NOT NULL, rate FLOAT, 
	CONSTRAINT pk_limits PRIMARY KEY ("key")
)
-- next
CREATE TABLE outbox (
	seq INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	stream TEXT NOT NULL, 
	"key" TEXT NOT NULL, 
	revision INTEGER NOT NULL, 
	created_at VARCHAR(32) NOT NULL, 
	position BIGINT, 
	sent_at VARCHAR(32)
, traceparent TEXT, existed TEXT)
-- next
CREATE UNIQUE INDEX ix_outbox_position ON outbox (position) WHERE position IS NOT NULL
-- next
CREATE INDEX ix_outbox_unsent ON outbox (seq) WHERE sent_at IS NULL
-- next
CREATE TABLE watermarks (
	stream TEXT NOT NULL, 
	value JSON, 
	fence BIGINT DEFAULT '0' NOT NULL, 
	holder VARCHAR(36), 
	lease_until VARCHAR(32), 
	high_water JSON, 
	moved_at VARCHAR(32), 
	last_parsed_at VARCHAR(32), 
	last_checked_at VARCHAR(32), items_stream TEXT, 
	CONSTRAINT pk_watermarks PRIMARY KEY (stream)
)
 WITHOUT ROWID
-- next
CREATE TABLE workers (
	worker TEXT NOT NULL, 
	role TEXT NOT NULL, 
	hostname TEXT NOT NULL, 
	pid INTEGER NOT NULL, 
	slots INTEGER DEFAULT '0' NOT NULL, 
	busy INTEGER DEFAULT '0' NOT NULL, 
	draining BOOLEAN DEFAULT 0 NOT NULL, 
	started_at VARCHAR(32) NOT NULL, 
	seen_until VARCHAR(32) NOT NULL, lock_file TEXT, lock_key BIGINT, died_at VARCHAR(32), 
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
	lease_until VARCHAR(32), 
	last_used_at VARCHAR(32), 
	created_at VARCHAR(32) DEFAULT (strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now')) NOT NULL, 
	updated_at VARCHAR(32) DEFAULT (strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now')) NOT NULL, proxy TEXT, takeout_id BIGINT, 
	CONSTRAINT pk_accounts PRIMARY KEY (name), 
	CONSTRAINT ck_accounts_state CHECK (state IN ('active', 'parked'))
)
-- next
CREATE TABLE breakers (
	"key" TEXT NOT NULL, 
	state TEXT DEFAULT 'closed' NOT NULL, 
	failures INTEGER DEFAULT '0' NOT NULL, 
	window_began VARCHAR(32), 
	failed_at JSON, 
	open_until VARCHAR(32), 
	probe_until VARCHAR(32), 
	trips INTEGER DEFAULT '0' NOT NULL, 
	reason TEXT, 
	updated_at VARCHAR(32) DEFAULT (strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now')) NOT NULL, 
	CONSTRAINT pk_breakers PRIMARY KEY ("key"), 
	CONSTRAINT ck_breakers_state CHECK (state IN ('closed', 'open', 'half-open'))
)
-- next
CREATE TABLE telegram_channels (
	account TEXT NOT NULL, 
	channel_id BIGINT NOT NULL, 
	access_hash BIGINT NOT NULL, 
	username TEXT, 
	title TEXT, 
	updated_at VARCHAR(32) DEFAULT (strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now')) NOT NULL, 
	CONSTRAINT pk_telegram_channels PRIMARY KEY (account, channel_id)
)
-- next
CREATE INDEX ix_telegram_channels_username ON telegram_channels (username)
-- next
CREATE INDEX ix_items_stream_occurred_at ON items (stream, occurred_at) WHERE occurred_at IS NOT NULL
-- next
CREATE VIEW posts AS
SELECT json_extract(data, '$.channel_id') AS channel_id, json_extract(data, '$.id') AS message_id, occurred_at AS date, json_extract(data, '$.text') AS text,
       json_extract(data, '$.views') AS views, json_extract(data, '$.forwards') AS forwards, json_extract(data, '$.edit_date') AS edit_date, json_extract(data, '$.grouped_id') AS grouped_id,
       revision, deleted, collected_at, tenant_id, user_id, stream, key, data
  FROM items WHERE stream LIKE 'telegram:%'
-- next
CREATE TABLE tokens (
	token_id VARCHAR(36) NOT NULL, 
	name TEXT NOT NULL, 
	role TEXT NOT NULL, 
	digest TEXT NOT NULL, 
	created_at VARCHAR(32) DEFAULT (strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now')) NOT NULL, 
	last_used_at VARCHAR(32), 
	expires_at VARCHAR(32), 
	revoked_at VARCHAR(32), 
	CONSTRAINT pk_tokens PRIMARY KEY (token_id), 
	CONSTRAINT ck_tokens_role CHECK (role IN ('read', 'operate', 'admin')), 
	CONSTRAINT uq_tokens_name UNIQUE (name)
)
-- next
CREATE TABLE audit (
	seq INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	at VARCHAR(32) DEFAULT (strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now')) NOT NULL, 
	who TEXT NOT NULL, 
	via TEXT NOT NULL, 
	action TEXT NOT NULL, 
	object TEXT NOT NULL, 
	"before" JSON, 
	"after" JSON, 
	request_id TEXT
)
-- next
CREATE INDEX ix_audit_object ON audit (object, seq)
-- next
CREATE TABLE idempotency_keys (
	"key" TEXT NOT NULL, 
	fingerprint TEXT NOT NULL, 
	answer JSON, 
	created_at VARCHAR(32) DEFAULT (strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now')) NOT NULL, 
	CONSTRAINT pk_idempotency_keys PRIMARY KEY ("key")
)
-- next
CREATE TABLE triggers (
	trigger_id VARCHAR(36) NOT NULL, 
	kind TEXT NOT NULL, 
	pattern TEXT NOT NULL, 
	jobs JSON DEFAULT '[]' NOT NULL, 
	params JSON DEFAULT '{}' NOT NULL, 
	secret TEXT, 
	debounce_seconds FLOAT DEFAULT '0' NOT NULL, 
	enabled BOOLEAN DEFAULT 1 NOT NULL, 
	fired BIGINT DEFAULT '0' NOT NULL, 
	matched BIGINT DEFAULT '0' NOT NULL, 
	refused BIGINT DEFAULT '0' NOT NULL, 
	refusals JSON DEFAULT '{}' NOT NULL, 
	last_fired_at VARCHAR(32), 
	last_refused_at VARCHAR(32), 
	last_refusal TEXT, 
	created_at VARCHAR(32) DEFAULT (strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now')) NOT NULL, 
	updated_at VARCHAR(32) DEFAULT (strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now')) NOT NULL, hinted BIGINT DEFAULT '0' NOT NULL, 
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
	received_at VARCHAR(32) DEFAULT (strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now')) NOT NULL, 
	fires_at VARCHAR(32), 
	answer JSON DEFAULT '{}' NOT NULL, 
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
	scheduled_for VARCHAR(32) NOT NULL, 
	recorded_at VARCHAR(32) DEFAULT (strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now')) NOT NULL, 
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
	visited_at VARCHAR(32), 
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
	content BLOB NOT NULL, 
	kept_at VARCHAR(32) DEFAULT (strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now')) NOT NULL, 
	CONSTRAINT pk_blobs PRIMARY KEY (sha256)
)
-- next
CREATE INDEX ix_blobs_kept_at ON blobs (kept_at)
-- next
CREATE TABLE scan_profiles (
	profile_id VARCHAR(36) DEFAULT (lower(hex(randomblob(16)))) NOT NULL, 
	name TEXT, 
	description TEXT, 
	params JSON DEFAULT '{}' NOT NULL, 
	created_at VARCHAR(32) DEFAULT (strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now')) NOT NULL, 
	updated_at VARCHAR(32) DEFAULT (strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now')) NOT NULL, 
	CONSTRAINT pk_scan_profiles PRIMARY KEY (profile_id)
)
-- next
CREATE VIEW schedules AS
        SELECT job_id AS schedule_id, domain_config_id, COALESCE(domain, target) AS domain, profile_id,
               COALESCE(frequency, schedule_type) AS frequency, COALESCE(time_config, '{}') AS time_config,
               (schedule_enabled AND NOT paused) AS enabled,
               CASE WHEN next_run < '9999-01-01' THEN next_run END AS next_run,
               last_run, CASE last_status WHEN 'queued' THEN 'pending' WHEN 'waiting' THEN 'pending' WHEN 'done' THEN 'success' WHEN 'dead' THEN 'failed' ELSE last_status END AS last_status, created_at, updated_at
          FROM jobs WHERE source = 'cookies' OR domain IS NOT NULL
-- next
CREATE VIEW job_executions AS
        SELECT e.execution_id, e.job_id AS schedule_id, e.job_id,
               COALESCE(j.domain, CASE WHEN j.source = 'cookies' THEN j.target END) AS domain, j.domain_config_id,
               CASE e.state WHEN 'queued' THEN 'pending' WHEN 'waiting' THEN 'pending' WHEN 'done' THEN 'success' WHEN 'dead' THEN 'failed' ELSE e.state END AS status, e.state,
               COALESCE(json_extract(e.result, '$.scan_id'), CASE WHEN j.source = 'cookies' AND e.state = 'done' THEN e.execution_id END)
               AS scan_id,
               e.result AS metadata, e.result, e.completed_at, e.created_at, e.job_name, e.scheduled_for, e.priority, e.trigger, e.params, e.attempt, e.rescues, e.coalesced, e.reason, e.hold, e.not_before, e.queue_rank, e.lease_until, e.worker, e.fence, e.cancel_requested, e.started_at, e.duration_seconds, e.items_new, e.items_changed, e.items_known, e.error_message, e.error_details, e.traceparent
          FROM executions e LEFT JOIN jobs j ON j.job_id = e.job_id
-- next
CREATE TRIGGER floodmark_insert_schedule INSTEAD OF INSERT ON schedules BEGIN SELECT RAISE(ABORT, 'a schedule needs a domain') WHERE NEW.domain IS NULL; INSERT INTO jobs (job_id, name, source, target, domain, domain_config_id, profile_id, schedule_type, frequency, time_config, schedule_enabled, next_run, created_at) VALUES (COALESCE(NEW.schedule_id, lower(hex(randomblob(16)))), 'cookies-' || replace(lower(NEW.domain), '.', '-') || CASE WHEN EXISTS (SELECT 1 FROM jobs WHERE name = 'cookies-' || replace(lower(NEW.domain), '.', '-')) THEN '-' || substr(COALESCE(NEW.schedule_id, lower(hex(randomblob(16)))), 1, 12) ELSE '' END, 'cookies', lower(NEW.domain), lower(NEW.domain), NEW.domain_config_id, NEW.profile_id, 'calendar', NEW.frequency, COALESCE(NEW.time_config, '{}'), COALESCE(NEW.enabled, TRUE), NEW.next_run, COALESCE(NEW.created_at, strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now'))); END
-- next
CREATE TRIGGER floodmark_update_schedule INSTEAD OF UPDATE ON schedules BEGIN SELECT RAISE(ABORT, 'last_run and last_status are written by Floodmark: leave them out') WHERE NEW.last_run IS NOT OLD.last_run OR NEW.last_status IS NOT OLD.last_status; UPDATE jobs SET domain = CASE WHEN NEW.domain IS NOT OLD.domain THEN lower(NEW.domain) ELSE domain END, target = CASE WHEN NEW.domain IS NOT OLD.domain THEN CASE WHEN source = 'cookies' THEN lower(NEW.domain) ELSE target END ELSE target END, domain_config_id = NEW.domain_config_id, profile_id = NEW.profile_id, schedule_type = CASE WHEN NEW.frequency IS NOT OLD.frequency THEN 'calendar' ELSE schedule_type END, frequency = CASE WHEN NEW.frequency IS NOT OLD.frequency THEN NEW.frequency ELSE frequency END, time_config = CASE WHEN NEW.time_config IS NOT OLD.time_config THEN NEW.time_config ELSE time_config END, schedule_enabled = CASE WHEN NEW.enabled IS NOT OLD.enabled THEN NEW.enabled ELSE schedule_enabled END, paused = CASE WHEN NEW.enabled IS NOT OLD.enabled THEN (paused AND NOT NEW.enabled) ELSE paused END, pause_reason = CASE WHEN NEW.enabled IS NOT OLD.enabled THEN CASE WHEN NOT NEW.enabled THEN pause_reason END ELSE pause_reason END, next_run = CASE WHEN NEW.next_run IS NOT OLD.next_run THEN NEW.next_run ELSE next_run END, version = version + 1, updated_at = strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now') WHERE job_id = OLD.schedule_id; END
-- next
CREATE TRIGGER floodmark_delete_schedule INSTEAD OF DELETE ON schedules BEGIN DELETE FROM jobs WHERE job_id = OLD.schedule_id; END
-- next
CREATE TRIGGER floodmark_insert_execution INSTEAD OF INSERT ON job_executions BEGIN INSERT INTO executions (job_name, scheduled_for, priority, trigger, params, attempt, rescues, coalesced, reason, hold, not_before, queue_rank, lease_until, worker, fence, cancel_requested, started_at, duration_seconds, items_new, items_changed, items_known, error_message, error_details, traceparent, execution_id, job_id, state, completed_at, result, created_at) VALUES (COALESCE(NEW.job_name, (SELECT name FROM jobs WHERE job_id = COALESCE(NEW.schedule_id, NEW.job_id)),
                        NEW.domain, NEW.schedule_id, NEW.job_id), COALESCE(NEW.scheduled_for, NEW.started_at, strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now')), COALESCE(NEW.priority, 2), COALESCE(NEW.trigger, 'schedule'), NEW.params, COALESCE(NEW.attempt, 0), COALESCE(NEW.rescues, 0), COALESCE(NEW.coalesced, 0), NEW.reason, NEW.hold, NEW.not_before, NEW.queue_rank, NEW.lease_until, NEW.worker, NEW.fence, NEW.cancel_requested, NEW.started_at, NEW.duration_seconds, COALESCE(NEW.items_new, 0), COALESCE(NEW.items_changed, 0), COALESCE(NEW.items_known, 0), NEW.error_message, NEW.error_details, NEW.traceparent, COALESCE(NEW.execution_id, lower(hex(randomblob(16)))), COALESCE(NEW.schedule_id, NEW.job_id), CASE COALESCE(NEW.status, NEW.state) WHEN 'pending' THEN 'queued' WHEN 'success' THEN 'done' WHEN 'successful' THEN 'done' WHEN 'succeeded' THEN 'done' WHEN 'completed' THEN 'done' WHEN 'failed' THEN 'dead' WHEN 'failure' THEN 'dead' WHEN 'error' THEN 'dead' WHEN 'canceled' THEN 'cancelled' ELSE COALESCE(NEW.status, NEW.state) END, COALESCE(NEW.completed_at, CASE WHEN (CASE COALESCE(NEW.status, NEW.state) WHEN 'pending' THEN 'queued' WHEN 'success' THEN 'done' WHEN 'successful' THEN 'done' WHEN 'succeeded' THEN 'done' WHEN 'completed' THEN 'done' WHEN 'failed' THEN 'dead' WHEN 'failure' THEN 'dead' WHEN 'error' THEN 'dead' WHEN 'canceled' THEN 'cancelled' ELSE COALESCE(NEW.status, NEW.state) END) IN ('done', 'dead', 'cancelled', 'skipped') THEN strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now') END), CASE WHEN NEW.scan_id IS NULL THEN COALESCE(NEW.metadata, NEW.result)
    ELSE json_set(COALESCE(NEW.metadata, NEW.result, '{}'), '$.scan_id', NEW.scan_id) END, COALESCE(NEW.created_at, strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now'))); END
-- next
CREATE TRIGGER floodmark_update_execution INSTEAD OF UPDATE ON job_executions BEGIN SELECT RAISE(ABORT, 'domain and domain_config_id belong to the schedule: change them there') WHERE NEW.domain IS NOT OLD.domain OR NEW.domain_config_id IS NOT OLD.domain_config_id; UPDATE executions SET job_name = NEW.job_name, scheduled_for = NEW.scheduled_for, priority = NEW.priority, trigger = NEW.trigger, params = NEW.params, attempt = NEW.attempt, rescues = NEW.rescues, coalesced = NEW.coalesced, reason = NEW.reason, hold = NEW.hold, not_before = NEW.not_before, queue_rank = NEW.queue_rank, lease_until = NEW.lease_until, worker = NEW.worker, fence = NEW.fence, cancel_requested = NEW.cancel_requested, started_at = NEW.started_at, duration_seconds = NEW.duration_seconds, items_new = NEW.items_new, items_changed = NEW.items_changed, items_known = NEW.items_known, error_message = NEW.error_message, error_details = NEW.error_details, traceparent = NEW.traceparent, job_id = CASE WHEN NEW.schedule_id IS NOT OLD.schedule_id THEN NEW.schedule_id ELSE NEW.job_id END, state = CASE WHEN NEW.status IS NOT OLD.status THEN CASE NEW.status WHEN 'pending' THEN 'queued' WHEN 'success' THEN 'done' WHEN 'successful' THEN 'done' WHEN 'succeeded' THEN 'done' WHEN 'completed' THEN 'done' WHEN 'failed' THEN 'dead' WHEN 'failure' THEN 'dead' WHEN 'error' THEN 'dead' WHEN 'canceled' THEN 'cancelled' ELSE NEW.status END ELSE NEW.state END, completed_at = COALESCE(NEW.completed_at, CASE WHEN (CASE WHEN NEW.status IS NOT OLD.status THEN CASE NEW.status WHEN 'pending' THEN 'queued' WHEN 'success' THEN 'done' WHEN 'successful' THEN 'done' WHEN 'succeeded' THEN 'done' WHEN 'completed' THEN 'done' WHEN 'failed' THEN 'dead' WHEN 'failure' THEN 'dead' WHEN 'error' THEN 'dead' WHEN 'canceled' THEN 'cancelled' ELSE NEW.status END ELSE NEW.state END) IN ('done', 'dead', 'cancelled', 'skipped') THEN strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now') END), result = CASE WHEN NEW.metadata IS NOT OLD.metadata THEN NEW.metadata ELSE NEW.result END WHERE execution_id = OLD.execution_id; END
-- next
CREATE TRIGGER floodmark_delete_execution INSTEAD OF DELETE ON job_executions BEGIN DELETE FROM executions WHERE execution_id = OLD.execution_id; END
-- next
CREATE INDEX ix_job_executions_active ON executions (job_id, hold) WHERE completed_at IS NULL
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
	next_free VARCHAR(32) DEFAULT (strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now')) NOT NULL, 
	interval_seconds FLOAT NOT NULL, 
	sources INTEGER DEFAULT '0' NOT NULL, 
	price FLOAT, 
	habits JSON, 
	measured_at VARCHAR(32), 
	version INTEGER DEFAULT '1' NOT NULL, 
	created_at VARCHAR(32) DEFAULT (strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now')) NOT NULL, 
	updated_at VARCHAR(32) DEFAULT (strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now')) NOT NULL, 
	CONSTRAINT pk_budgets PRIMARY KEY (name), 
	CONSTRAINT ck_budgets_period CHECK (period = 'minute' OR period = 'week'), 
	CONSTRAINT ck_budgets_requests CHECK (requests > 0)
)
-- next
CREATE TABLE budget_grants (
	execution_id VARCHAR(36) NOT NULL, 
	budget TEXT NOT NULL, 
	granted_at VARCHAR(32) DEFAULT (strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now')) NOT NULL, 
	CONSTRAINT pk_budget_grants PRIMARY KEY (execution_id)
)
-- next
CREATE INDEX ix_budget_grants_budget ON budget_grants (budget)
-- next
CREATE TABLE budget_hours (
	budget TEXT NOT NULL, 
	hour VARCHAR(32) NOT NULL, 
	requests INTEGER DEFAULT '0' NOT NULL, 
	CONSTRAINT pk_budget_hours PRIMARY KEY (budget, hour)
)
-- next
CREATE TABLE activity (
	job_id VARCHAR(36) NOT NULL, 
	learned BLOB, 
	measured BLOB, 
	polled_at VARCHAR(32) NOT NULL, 
	CONSTRAINT pk_activity PRIMARY KEY (job_id), 
	CONSTRAINT fk_activity_job_id FOREIGN KEY(job_id) REFERENCES jobs (job_id) ON DELETE CASCADE
)
-- next
CREATE INDEX ix_jobs_next_run ON jobs (next_run) WHERE schedule_enabled AND NOT paused AND invalid_reason IS NULL AND scheduler_version = 2 AND (schedule_type <> 'adaptive' OR next_run IS NULL)
-- next
CREATE INDEX ix_jobs_adaptive ON jobs (budget, next_run) WHERE schedule_enabled AND NOT paused AND invalid_reason IS NULL AND scheduler_version = 2 AND schedule_type = 'adaptive'
-- next
CREATE INDEX ix_jobs_hinted ON jobs (budget, hinted_at) WHERE hinted_at IS NOT NULL
-- next
CREATE TRIGGER floodmark_watch_when AFTER UPDATE OF schedule_type, cron_expression, interval_seconds, frequency, time_config, timezone, schedule_enabled, paused, scheduler_version, budget, max_delay_seconds, weight ON jobs
        WHEN NEW.schedule_type IS NOT OLD.schedule_type OR NEW.cron_expression IS NOT OLD.cron_expression OR NEW.interval_seconds IS NOT OLD.interval_seconds OR NEW.frequency IS NOT OLD.frequency OR NEW.time_config IS NOT OLD.time_config OR NEW.timezone IS NOT OLD.timezone OR NEW.schedule_enabled IS NOT OLD.schedule_enabled OR NEW.paused IS NOT OLD.paused OR NEW.scheduler_version IS NOT OLD.scheduler_version OR NEW.budget IS NOT OLD.budget OR NEW.max_delay_seconds IS NOT OLD.max_delay_seconds OR NEW.weight IS NOT OLD.weight
        BEGIN
            UPDATE jobs SET next_run = NULL, planned_until = strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now'), invalid_reason = NULL,
                            version = OLD.version + 1, updated_at = strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now')
             WHERE job_id = NEW.job_id;
        END
-- next
CREATE TABLE feed_subscriptions (
	target TEXT NOT NULL, 
	hub TEXT NOT NULL, 
	topic TEXT NOT NULL, 
	callback TEXT NOT NULL, 
	secret TEXT, 
	state TEXT DEFAULT 'found' NOT NULL, 
	tries INTEGER DEFAULT '0' NOT NULL, 
	due_at VARCHAR(32) DEFAULT (strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now')) NOT NULL, 
	asked_at VARCHAR(32), 
	expires_at VARCHAR(32), 
	last_error TEXT, 
	pushes BIGINT DEFAULT '0' NOT NULL, 
	last_push_at VARCHAR(32), 
	created_at VARCHAR(32) DEFAULT (strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now')) NOT NULL, 
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
	state JSON, 
	paused BOOLEAN DEFAULT 0 NOT NULL, 
	error TEXT, 
	failed_at VARCHAR(32), 
	moved_at VARCHAR(32) DEFAULT (strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now')) NOT NULL, 
	created_at VARCHAR(32) DEFAULT (strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now')) NOT NULL, 
	CONSTRAINT pk_consumers PRIMARY KEY (name)
)
-- next
CREATE TABLE sessions (
	session_id VARCHAR(36) NOT NULL, 
	digest TEXT NOT NULL, 
	token_id VARCHAR(36) NOT NULL, 
	browser TEXT DEFAULT '' NOT NULL, 
	address TEXT DEFAULT '' NOT NULL, 
	created_at VARCHAR(32) DEFAULT (strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now')) NOT NULL, 
	last_used_at VARCHAR(32) DEFAULT (strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now')) NOT NULL, 
	expires_at VARCHAR(32) NOT NULL, 
	CONSTRAINT pk_sessions PRIMARY KEY (session_id), 
	CONSTRAINT fk_sessions_token_id FOREIGN KEY(token_id) REFERENCES tokens (token_id) ON DELETE CASCADE
)
-- next
CREATE INDEX ix_sessions_token_id ON sessions (token_id)
-- next
CREATE TABLE minutes (
	minute VARCHAR(32) NOT NULL, 
	created INTEGER, 
	unfinished INTEGER DEFAULT '0' NOT NULL, 
	started INTEGER DEFAULT '0' NOT NULL, 
	lateness JSON, 
	recount_at VARCHAR(32), 
	counted JSON, 
	counted_at VARCHAR(32), 
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
	new INTEGER DEFAULT '0' NOT NULL, 
	changed INTEGER DEFAULT '0' NOT NULL, 
	CONSTRAINT pk_stream_days PRIMARY KEY (stream, day)
)
 WITHOUT ROWID
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
	created_at VARCHAR(32) DEFAULT (strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now')) NOT NULL, 
	expires_at VARCHAR(32) NOT NULL, 
	CONSTRAINT pk_account_logins PRIMARY KEY (login_id), 
	CONSTRAINT ck_account_logins_step CHECK (step IN ('code', 'password'))
)
-- next
CREATE TABLE sinks (
	name TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	streams TEXT, 
	is_configured BOOLEAN DEFAULT 1 NOT NULL, 
	failures INTEGER DEFAULT '0' NOT NULL, 
	retry_at VARCHAR(32), 
	CONSTRAINT pk_sinks PRIMARY KEY (name)
)
-- next
CREATE TABLE sink_letters (
	sink TEXT NOT NULL, 
	position BIGINT NOT NULL, 
	stream TEXT NOT NULL, 
	"key" TEXT NOT NULL, 
	revision INTEGER NOT NULL, 
	error TEXT NOT NULL, 
	failed_at VARCHAR(32) DEFAULT (strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now')) NOT NULL, 
	is_retried BOOLEAN DEFAULT 0 NOT NULL, 
	CONSTRAINT pk_sink_letters PRIMARY KEY (sink, position)
)
-- next
CREATE INDEX ix_sink_letters_retried ON sink_letters (sink, position) WHERE is_retried
-- next
CREATE INDEX ix_watermarks_items_stream ON watermarks (items_stream) WHERE items_stream IS NOT NULL
-- next
CREATE TABLE watches (
	watch_id VARCHAR(36) NOT NULL, 
	name TEXT NOT NULL, 
	kind TEXT DEFAULT 'items' NOT NULL, 
	"query" TEXT, 
	pattern TEXT, 
	whole_word BOOLEAN DEFAULT 0 NOT NULL, 
	conditions JSON DEFAULT '[]' NOT NULL, 
	streams JSON DEFAULT '[]' NOT NULL, 
	sources JSON DEFAULT '[]' NOT NULL, 
	tags JSON DEFAULT '[]' NOT NULL, 
	channels JSON DEFAULT '[]' NOT NULL, 
	threshold_count INTEGER, 
	threshold_seconds FLOAT, 
	digest TEXT, 
	quiet TEXT, 
	timezone TEXT DEFAULT 'UTC' NOT NULL, 
	cooldown_seconds FLOAT, 
	max_age_seconds FLOAT, 
	paused BOOLEAN DEFAULT 0 NOT NULL, 
	after_position BIGINT DEFAULT '0' NOT NULL, 
	active_at VARCHAR(32) DEFAULT (strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now')) NOT NULL, 
	generation BIGINT NOT NULL, 
	version INTEGER DEFAULT '1' NOT NULL, 
	created_at VARCHAR(32) DEFAULT (strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now')) NOT NULL, 
	updated_at VARCHAR(32) DEFAULT (strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now')) NOT NULL, 
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
	last_match_at VARCHAR(32), 
	hour VARCHAR(32), 
	stored INTEGER DEFAULT '0' NOT NULL, 
	CONSTRAINT pk_watch_counts PRIMARY KEY (watch_id), 
	CONSTRAINT fk_watch_counts_watch_id FOREIGN KEY(watch_id) REFERENCES watches (watch_id) ON DELETE CASCADE
)
-- next
CREATE TABLE watch_matches (
	seq INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	watch_id VARCHAR(36) NOT NULL, 
	event_id TEXT NOT NULL, 
	stream TEXT NOT NULL, 
	"key" TEXT, 
	revision INTEGER, 
	position BIGINT, 
	at VARCHAR(32) NOT NULL, 
	is_due BOOLEAN NOT NULL, 
	title TEXT NOT NULL, 
	text TEXT NOT NULL, 
	url TEXT, 
	created_at VARCHAR(32) DEFAULT (strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now')) NOT NULL, 
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
	due_at VARCHAR(32), 
	notification_id VARCHAR(36), 
	sent_at VARCHAR(32), 
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
	message JSON NOT NULL, 
	attempts INTEGER DEFAULT '0' NOT NULL, 
	try_at VARCHAR(32), 
	sent_at VARCHAR(32), 
	error TEXT, 
	created_at VARCHAR(32) DEFAULT (strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now')) NOT NULL, 
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
	keys JSON NOT NULL, 
	CONSTRAINT pk_page_matches PRIMARY KEY (stream, url)
)
-- next
CREATE TABLE telegram_engagement (
	stream TEXT NOT NULL, 
	"key" TEXT NOT NULL, 
	point INTEGER NOT NULL, 
	seen_at VARCHAR(32) NOT NULL, 
	views BIGINT, 
	forwards BIGINT, 
	replies BIGINT, 
	reactions JSON, 
	CONSTRAINT pk_telegram_engagement PRIMARY KEY (stream, "key", point)
)
-- next
CREATE TABLE media (
	media_id TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	stream TEXT NOT NULL, 
	"key" TEXT NOT NULL, 
	channel_id BIGINT NOT NULL, 
	message_id BIGINT NOT NULL, 
	size BIGINT, 
	media_type TEXT, 
	filename TEXT, 
	state TEXT DEFAULT 'wanted' NOT NULL, 
	sha256 TEXT, 
	attempts INTEGER DEFAULT '0' NOT NULL, 
	try_at VARCHAR(32) DEFAULT (strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now')) NOT NULL, 
	error TEXT, 
	holder TEXT, 
	lease_until VARCHAR(32), 
	created_at VARCHAR(32) DEFAULT (strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now')) NOT NULL, 
	stored_at VARCHAR(32), 
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
	value JSON NOT NULL, 
	gaps INTEGER DEFAULT '0' NOT NULL, 
	updated_at VARCHAR(32) DEFAULT (strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now')) NOT NULL, 
	CONSTRAINT pk_completeness PRIMARY KEY (stream)
)
 WITHOUT ROWID
-- next
CREATE INDEX ix_completeness_gaps ON completeness (stream) WHERE gaps > 0
-- next
CREATE TABLE proof_links (
	stream TEXT NOT NULL, 
	number BIGINT NOT NULL, 
	day DATE NOT NULL, 
	count INTEGER NOT NULL, 
	entries BLOB NOT NULL, 
	previous TEXT NOT NULL, 
	digest TEXT NOT NULL, 
	CONSTRAINT pk_proof_links PRIMARY KEY (stream, number)
)
 WITHOUT ROWID
-- next
CREATE TABLE portfolio_reports (
	report_id INTEGER NOT NULL, 
	made_at VARCHAR(32) NOT NULL, 
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
	created_at VARCHAR(32) DEFAULT (strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now')) NOT NULL, 
	changed_at VARCHAR(32) DEFAULT (strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now')) NOT NULL, 
	CONSTRAINT pk_secrets PRIMARY KEY (name)
)
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
	created_at VARCHAR(32) DEFAULT (strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now')) NOT NULL, 
	CONSTRAINT pk_execution_hops PRIMARY KEY (execution_id)
)
-- next
CREATE INDEX ix_execution_hops_created_at ON execution_hops (created_at)
-- next
CREATE INDEX ix_job_executions_rare_of_job ON executions (job_id, scheduled_for) WHERE state IN ('cancelled', 'dead', 'skipped')
-- next
CREATE INDEX ix_watermarks_cookie_scans ON watermarks (stream) WHERE substr(stream, 1, 8) = 'cookies:'
-- next
CREATE INDEX ix_job_executions_held ON executions (hold, job_id, scheduled_for) WHERE hold IS NOT NULL
-- next
CREATE INDEX ix_jobs_open_webhook ON jobs (trigger_webhook) WHERE rtrim(replace(replace(replace(COALESCE(trigger_webhook, ''), '*', ''), '{', ''), '//', ''), '/') <> COALESCE(trigger_webhook, '')
-- next
CREATE INDEX ix_jobs_open_channel ON jobs (trigger_channel) WHERE replace(replace(replace(COALESCE(trigger_channel, ''), '*', ''), '?', ''), '[', '') <> COALESCE(trigger_channel, '')
