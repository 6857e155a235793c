-- Acknowledge and delete entries, and remove their executions from `known`.
-- KEYS: 1 known, 2-4 the streams high, normal, low
-- ARGV: 1 group, 2 as JSON: their execution ids, and their "<priority>:<entry>"
-- returns: how many entries were deleted
local group, deleted = ARGV[1], 0
local ids, references = unpack(cjson.decode(ARGV[2]))
local entries = { {}, {}, {} }
for _, reference in ipairs(references) do
    local list = entries[tonumber(string.sub(reference, 1, 1))]
    list[#list + 1] = string.sub(reference, 3)
end
for priority = 1, 3 do
    if #entries[priority] > 0 then
        redis.call('XACK', KEYS[priority + 1], group, unpack(entries[priority]))
        deleted = deleted + redis.call('XDEL', KEYS[priority + 1], unpack(entries[priority]))
    end
end
-- Executions that were put again meanwhile have a newer entry, and stay known.
local known, forgotten = redis.call('HMGET', KEYS[1], unpack(ids)), {}
for i, id in ipairs(ids) do
    if known[i] == references[i] then forgotten[#forgotten + 1] = id end
end
if #forgotten > 0 then redis.call('HDEL', KEYS[1], unpack(forgotten)) end
return deleted
