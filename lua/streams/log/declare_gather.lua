-- Makes a stream gather: its rows wait until all rows of their request are written.
--
-- KEYS  1 entries        stream
--       2 subscriptions  hash (streams/includes/streams.lua)
-- ARGV  1 record         the way it gathers (acker/streams/log/gathers.py)
-- Returns nil; otherwise the obstacle, and nothing has changed: the present way of the stream, or '' if it
-- holds segments that do not wait.
local found = redis.call('HGET', KEYS[2], 'gather')
if found then
  if found == ARGV[1] then return false end
  return found
end
if redis.call('XLEN', KEYS[1]) > 0 then return '' end
redis.call('HSET', KEYS[2], 'gather', ARGV[1])
return false
