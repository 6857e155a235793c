-- Settle entries: acknowledge and delete them, and forget the executions they stood for.
-- KEYS: 1 known, 2-4 the streams high, normal, low
-- ARGV: 1 group, then pairs of execution id and "<priority>:<entry>"
-- returns: how many entries were deleted
local deleted = 0
for i = 2, #ARGV, 2 do
    local id, reference = ARGV[i], ARGV[i + 1]
    local number, entry = string.match(reference, '^(%d):(.+)$')
    redis.call('XACK', KEYS[number + 1], ARGV[1], entry)
    deleted = deleted + redis.call('XDEL', KEYS[number + 1], entry)
    if redis.call('HGET', KEYS[1], id) == reference then
        redis.call('HDEL', KEYS[1], id)
    end
end
return deleted
