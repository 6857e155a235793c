-- Take over the pending entries of silent consumers, and remove silent consumers without pending entries.
-- KEYS: 1 known, 2-4 the streams high, normal, low
-- ARGV: 1 group, 2 consumer, 3 milliseconds of silence, 4 count
-- returns: execution id, "<priority>:<entry>", ... flat
local group, consumer, silence, wanted = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local result = {}
-- One script call must not block Redis for long.
local MOST_ROUNDS = 1000
for priority = 1, 3 do
    local key, from, rounds = KEYS[priority + 1], '0-0', 0
    -- One call examines ten times as many entries as it may claim, also those of living consumers: continue from there.
    repeat
        local claimed = redis.pcall('XAUTOCLAIM', key, group, consumer, silence, from, 'COUNT', wanted)
        -- There is no such stream or group.
        if claimed.err then break end
        from, rounds = claimed[1], rounds + 1
        for _, entry in ipairs(claimed[2]) do
            local reference = priority .. ':' .. entry[1]
            local id = entry[2] and entry[2][2]
            if id and redis.call('HGET', KEYS[1], id) == reference then
                table.insert(result, id)
                table.insert(result, reference)
                wanted = wanted - 1
            else
                redis.call('XACK', key, group, entry[1])
                redis.call('XDEL', key, entry[1])
            end
        end
    until from == '0-0' or wanted < 1 or rounds >= MOST_ROUNDS
    if rounds > 0 then
        for _, fields in ipairs(redis.call('XINFO', 'CONSUMERS', key, group)) do
            local info = {}
            for i = 1, #fields, 2 do info[fields[i]] = fields[i + 1] end
            if info['pending'] == 0 and info['idle'] > silence * 20 and info['name'] ~= consumer then
                redis.call('XGROUP', 'DELCONSUMER', key, group, info['name'])
            end
        end
    end
    if wanted < 1 then break end
end
return result
