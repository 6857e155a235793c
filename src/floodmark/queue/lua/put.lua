-- Make executions available. A known execution keeps its entry, unless it is put again.
-- KEYS: 1 known, 2-4 the streams high, normal, low
-- ARGV: 1 group, 2 "1" to put again, 3 as JSON: their ids, their priorities, and if any of them is traced, their
--       traceparents, "" for those that are not
-- returns: how many entries were added: high, normal, low
local group, again = ARGV[1], ARGV[2] == '1'
local ids, priorities, traces = unpack(cjson.decode(ARGV[3]))
local known = redis.call('HMGET', KEYS[1], unpack(ids))
local fresh, added = {}, { 0, 0, 0 }

local function is_there(id, reference)
    local number, entry = string.match(reference, '^(%d):(.+)$')
    local found = redis.call('XRANGE', KEYS[number + 1], entry, entry)[1]
    -- The stream may have been deleted; a new stream can use the same entry id for another execution.
    local is_of_another = found and found[2][2] ~= id
    if again and not is_of_another then
        redis.call('XACK', KEYS[number + 1], group, entry)
        redis.call('XDEL', KEYS[number + 1], entry)
        return false
    end
    return found and not is_of_another
end

for i, id in ipairs(ids) do
    if not (known[i] and is_there(id, known[i])) then
        local priority = priorities[i]
        added[priority] = added[priority] + 1
        fresh[#fresh + 1] = id
        local stream, trace, entry = KEYS[priority + 1], traces[i]
        if trace and trace ~= '' then
            entry = redis.call('XADD', stream, '*', 'id', id, 'traceparent', trace)
        else
            entry = redis.call('XADD', stream, '*', 'id', id)
        end
        fresh[#fresh + 1] = priority .. ':' .. entry
    end
end
if #fresh > 0 then
    redis.call('HSET', KEYS[1], unpack(fresh))
end
return added
