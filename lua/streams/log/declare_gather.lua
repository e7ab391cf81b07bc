-- Makes a stream gather: its rows wait until all rows of their request are written.
--
-- KEYS  1 entries        stream
--       2 subscriptions  hash (streams/includes/streams.lua)
--       3 removals       string (store/includes/late.lua)
-- ARGV  1 record         the way it gathers (acker/streams/log/gathers.py)
--       2 removals       as the caller has read it, or empty
--       3 until          ms of the server's clock
-- Returns nil; otherwise the obstacle, and nothing has changed: the present way of the stream, or '' if it
-- holds segments that do not wait. An error ACKER LATE if the stream was removed since, or after `until`.
--- @include "store/includes/late"
local found = redis.call('HGET', KEYS[2], 'gather')
if found then
  if found == ARGV[1] then return false end
  return found
end
if redis.call('XLEN', KEYS[1]) > 0 then return '' end
local refused = late(KEYS[3], ARGV[2], ARGV[3])
if refused then return refused end
redis.call('HSET', KEYS[2], 'gather', ARGV[1])
return false
