-- Give a lease back. A stranger's is left alone.
-- KEYS: 1 the lease
-- ARGV: 1 holder
-- returns: 1 when it was ours, 0 when not
if redis.call('GET', KEYS[1]) == ARGV[1] then
    return redis.call('DEL', KEYS[1])
end
return 0
