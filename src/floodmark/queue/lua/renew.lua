-- Mark entries as still being processed.
-- KEYS: 1 known, 2-4 the streams high, normal, low
-- ARGV: 1 group, 2 consumer, 3 as JSON: "<priority>:<entry>" for each
-- returns: how many were renewed
local renewed = 0
for _, reference in ipairs(cjson.decode(ARGV[3])) do
    local number, entry = string.match(reference, '^(%d):(.+)$')
    local answer = redis.pcall('XCLAIM', KEYS[number + 1], ARGV[1], ARGV[2], 0, entry, 'JUSTID')
    if not answer.err then renewed = renewed + #answer end
end
return renewed
