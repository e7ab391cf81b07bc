-- Has a stream gather: what is written to it waits until all of its request is written.
--
-- KEYS  1 entries        stream
--       2 subscriptions  hash (streams/includes/streams.lua)
-- ARGV  1 record         how it gathers (acker/streams/log/gathers.py)
-- Returns nil; what is in the way otherwise, and nothing has changed: how the stream gathers already, or ''
-- where it holds segments that do not wait.
local found = redis.call('HGET', KEYS[2], 'gather')
if found then
  if found == ARGV[1] then return false end
  return found
end
if redis.call('XLEN', KEYS[1]) > 0 then return '' end
redis.call('HSET', KEYS[2], 'gather', ARGV[1])
return false
