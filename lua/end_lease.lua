-- Takes a worker whose time is over for dead: from now on it begins nothing.
--
-- KEYS  1 workers  hash (lua/lease.lua)
-- ARGV  1 reader
-- Returns {1, what it has begun, or empty}; {0} where it counts as alive, or is not known any more.
local found, begun = unpack(redis.call('HMGET', KEYS[1], ARGV[1], '!' .. ARGV[1]))
if not found then return {0} end
local now = redis.call('TIME')
-- A value that is no number was not written by a worker, so none lives by it.
if (tonumber(found) or 0) >= now[1] * 1000 + math.floor(now[2] / 1000) then return {0} end
redis.call('HSET', KEYS[1], ARGV[1], 0)
return {1, begun or ''}
