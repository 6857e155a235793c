-- Append events to the event stream.
-- KEYS: 1 the stream
-- ARGV: 1 how many entries the stream keeps, about; then one MessagePack list of field names and values an event
-- returns: how many were added
for i = 2, #ARGV do
    redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], '*', unpack(cmsgpack.unpack(ARGV[i])))
end
return #ARGV - 1
