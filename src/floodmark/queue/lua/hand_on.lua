-- Add the entries that a dead consumer had read again, as new ones for the other consumers.
-- KEYS: 1 known, 2-4 the streams high, normal, low
-- ARGV: 1 group, 2 consumer, 3 how many of each stream
-- returns: how many entries were processed
local group, consumer, most = ARGV[1], ARGV[2], ARGV[3]
local seen = 0
for priority = 1, 3 do
    local key = KEYS[priority + 1]
    local pending = redis.pcall('XPENDING', key, group, '-', '+', most, consumer)
    -- An error means that there is no such stream or group.
    if not pending.err then
        for _, row in ipairs(pending) do
            local entry, found = row[1], redis.call('XRANGE', key, row[1], row[1])[1]
            local id = found and found[2][2]
            redis.call('XACK', key, group, entry)
            redis.call('XDEL', key, entry)
            -- An entry that is not the known one of its execution is out of date.
            if id and redis.call('HGET', KEYS[1], id) == priority .. ':' .. entry then
                local fresh = redis.call('XADD', key, '*', unpack(found[2]))
                redis.call('HSET', KEYS[1], id, priority .. ':' .. fresh)
            end
        end
        seen = seen + #pending
        if #pending < tonumber(most) then
            redis.call('XGROUP', 'DELCONSUMER', key, group, consumer)
        end
    end
end
return seen
