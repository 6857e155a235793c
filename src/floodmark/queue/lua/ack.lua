-- Acknowledge and delete entries, and remove their executions from `known`.
-- KEYS: 1 known, 2-4 the streams high, normal, low
-- ARGV: 1 group, 2 how many, then their execution ids, then their "<priority>:<entry>"
-- returns: how many entries were deleted
local group, count, deleted = ARGV[1], tonumber(ARGV[2]), 0
local entries = { {}, {}, {} }
for i = 3 + count, #ARGV do
    local list = entries[tonumber(string.sub(ARGV[i], 1, 1))]
    list[#list + 1] = string.sub(ARGV[i], 3)
end
for priority = 1, 3 do
    if #entries[priority] > 0 then
        redis.call('XACK', KEYS[priority + 1], group, unpack(entries[priority]))
        deleted = deleted + redis.call('XDEL', KEYS[priority + 1], unpack(entries[priority]))
    end
end
-- Executions that were put again meanwhile have a newer entry, and stay known.
local known, forgotten = redis.call('HMGET', KEYS[1], unpack(ARGV, 3, 2 + count)), {}
for i = 1, count do
    if known[i] == ARGV[2 + count + i] then forgotten[#forgotten + 1] = ARGV[2 + i] end
end
if #forgotten > 0 then redis.call('HDEL', KEYS[1], unpack(forgotten)) end
return deleted
