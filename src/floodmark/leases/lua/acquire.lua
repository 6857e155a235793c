-- Take or renew a lease.
-- KEYS: 1 the lease
-- ARGV: 1 holder, 2 milliseconds
-- returns: 1 when held by us now, 0 when by someone else
local current = redis.call('GET', KEYS[1])
if current and current ~= ARGV[1] then
    return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
