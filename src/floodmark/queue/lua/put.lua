-- Make executions available. One that is known already is left as it is, unless it is put again.
-- KEYS: 1 known, 2-4 the streams high, normal, low
-- ARGV: 1 group, 2 "1" to put again, then pairs of execution id and priority
-- returns: how many entries were added
local added = 0
for i = 3, #ARGV, 2 do
    local id, priority = ARGV[i], ARGV[i + 1]
    local known = redis.call('HGET', KEYS[1], id)
    if known then
        local number, entry = string.match(known, '^(%d):(.+)$')
        if ARGV[2] == '1' then
            redis.call('XACK', KEYS[number + 1], ARGV[1], entry)
            redis.call('XDEL', KEYS[number + 1], entry)
            known = false
        elseif #redis.call('XRANGE', KEYS[number + 1], entry, entry) == 0 then
            -- Someone deleted the entry, or the whole stream.
            known = false
        end
    end
    if not known then
        local entry = redis.call('XADD', KEYS[priority + 1], '*', 'id', id)
        redis.call('HSET', KEYS[1], id, priority .. ':' .. entry)
        added = added + 1
    end
end
return added
