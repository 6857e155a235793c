-- Count the entries that no consumer has read yet.
-- KEYS: 1 known, 2-4 the streams high, normal, low
-- ARGV: 1 group
-- returns: three numbers: high, normal, low
local depths = {}
for priority = 1, 3 do
    local key = KEYS[priority + 1]
    local pending = redis.pcall('XPENDING', key, ARGV[1])
    depths[priority] = redis.call('XLEN', key) - (pending.err and 0 or pending[1])
end
return depths
