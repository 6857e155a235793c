-- Hand out new entries, most urgent first.
-- The stream whose first entry has the lowest rank gets most of the batch, the others a share of it. A rank is the time
-- at which an entry was added plus the delay of its priority.
-- KEYS: 1 known, 2-4 the streams high, normal, low
-- ARGV: 1 group, 2 consumer, 3 count, 4-6 the delays of high, normal, low in milliseconds, 7-12 the shares of one stream,
--       of two and of three (`rules/rank.py` has delays and shares)
-- returns: execution id, "<priority>:<entry>", ... flat
local group, consumer, wanted = ARGV[1], ARGV[2], tonumber(ARGV[3])

local function last_delivered(key)
    local groups = redis.pcall('XINFO', 'GROUPS', key)
    if not groups.err then
        for _, fields in ipairs(groups) do
            local name, last
            for i = 1, #fields, 2 do
                if fields[i] == 'name' then name = fields[i + 1] end
                if fields[i] == 'last-delivered-id' then last = fields[i + 1] end
            end
            if name == group then return last end
        end
    end
    -- From the first entry on: entries may be older than the group.
    redis.call('XGROUP', 'CREATE', key, group, '0', 'MKSTREAM')
    return '0-0'
end

local waiting = {}
for priority = 1, 3 do
    local key = KEYS[priority + 1]
    local head = redis.call('XRANGE', key, '(' .. last_delivered(key), '+', 'COUNT', 1)[1]
    if head then
        local came = tonumber(string.match(head[1], '^(%d+)'))
        table.insert(waiting, { priority = priority, key = key, rank = came + tonumber(ARGV[3 + priority]) })
    end
end
table.sort(waiting, function(a, b)
    if a.rank == b.rank then return a.priority < b.priority end
    return a.rank < b.rank
end)

local result = {}
local function read(stream, count)
    if count < 1 then return 0 end
    local answer = redis.call('XREADGROUP', 'GROUP', group, consumer, 'COUNT', count, 'STREAMS', stream.key, '>')
    if not answer then return 0 end
    local entries = answer[1][2]
    for _, entry in ipairs(entries) do
        local reference = stream.priority .. ':' .. entry[1]
        local id = entry[2] and entry[2][2]
        if id and entry[2][1] == 'id' then
            result[#result + 1] = id
            result[#result + 1] = reference
        else
            -- Floodmark did not write this entry. (An outdated entry of ours is dropped when its claim fails.)
            redis.call('XACK', stream.key, group, entry[1])
            redis.call('XDEL', stream.key, entry[1])
        end
    end
    return #entries
end

-- The shares of two streams start after the one of one stream, those of three after these three.
local first = ({ [0] = 7, 7, 8, 10 })[#waiting]
local left = wanted
for place, stream in ipairs(waiting) do
    left = left - read(stream, math.min(left, math.ceil(wanted * tonumber(ARGV[first + place - 1]))))
end
for _, stream in ipairs(waiting) do
    left = left - read(stream, left)
end
return result
