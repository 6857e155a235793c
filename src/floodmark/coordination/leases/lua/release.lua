-- Delete the key of a lease, unless another holder has set it.
-- KEYS: 1 the lease
-- ARGV: 1 holder
-- returns: 1 when it was deleted, 0 when not
if redis.call('GET', KEYS[1]) == ARGV[1] then
    return redis.call('DEL', KEYS[1])
end
return 0
