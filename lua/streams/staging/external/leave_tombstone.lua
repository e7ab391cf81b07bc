-- Ends an external segment in a shard without an ack, when its trees are over. It leaves its state, like an
-- acked segment: otherwise a late copy of a call would emit it once more, and undo its first emit.
--
-- KEYS  1 staged  hash (lua/streams/includes/external.lua)
-- ARGV  1 margin  seconds for which the state stays beyond the hash's `ttl`
-- Returns 1, or 0 if it has ended before. What was never emitted is deleted.
local call = redis.call
local state, ttl = unpack(call('HMGET', KEYS[1], 'state', 'ttl'))
if not state or not ttl or string.find(state, '0', 1, true) then return call('DEL', KEYS[1]) end
if state == string.rep('2', #state) then return 0 end
call('DEL', KEYS[1])
call('HSET', KEYS[1], 'state', string.rep('2', #state), 'void', 1)
call('EXPIRE', KEYS[1], (tonumber(ttl) or 0) + ARGV[1])
return 1
