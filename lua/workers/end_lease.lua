-- Declares a worker dead whose lease is over: from now on it begins nothing.
--
-- KEYS  1 workers  hash (lua/workers/lease.lua)
-- ARGV  1 reader
-- Returns {1, its begun work, the reason why that was not committed}, each empty if it is not noted; {0}
-- if the worker counts as alive, or is no longer known.
local reader = ARGV[1]
local found, begun, why = unpack(redis.call('HMGET', KEYS[1], reader, '!' .. reader, '?' .. reader))
if not found then return {0} end
local instant = redis.call('TIME')
local now = instant[1] * 1000 + math.floor(instant[2] / 1000)
-- No worker writes an unreadable value, so none lives by it.
local till, length = string.match(found, '^(%d+) (%d+)$')
till = tonumber(till or 0)
if till >= now then
  -- The clock was set back since: a dead worker would count as alive until the clock reaches its old time.
  if till > now + length then
    redis.call('HSET', KEYS[1], reader, string.format('%.0f %s', now + length, length))
  end
  return {0}
end
redis.call('HSET', KEYS[1], reader, 0)
return {1, begun or '', why or ''}
