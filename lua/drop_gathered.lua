-- Drops what has gathered for a group of which no request is left: nobody will work on it.
--
-- KEYS  1 subscriptions  hash (includes/streams.lua)
--       2 progress       hash (lua/note_arrivals.lua)
--       3 gathering      sorted set (lua/gather.lua)
--       ... gathered     stream of each task (lua/release.lua)
-- ARGV  1 ttl            seconds for which what comes for the group later is known to be late
--       ... place        "<group>:<task>" of each
-- Returns the records of the segments that waited, whose rows and vectors are the caller's to delete: each
-- is returned once.
-- Bounded: 64 tasks, and what a stream that gathers holds of one group.
--- @include "streams"
if call('HEXISTS', KEYS[2], 'released') == 0 then
  local now = call('TIME')
  call('HSET', KEYS[2], 'released', string.format('%.0f', now[1] * 1000 + math.floor(now[2] / 1000)))
end
call('HDEL', KEYS[2], 'over', 'acked')
call('EXPIRE', KEYS[2], ARGV[1])
local dropped = {}
for k = 4, #KEYS do
  for _, one in ipairs(call('XRANGE', KEYS[k], '-', '+', 'COUNT', 1000)) do
    dropped[#dropped + 1] = one[2][2]
    stream.count(KEYS[1], 'segments', -1)
    stream.count(KEYS[1], 'waiting', -(tonumber(one[2][4]) or 0))
    stream.count(KEYS[1], 'too_late', one[2][4])
  end
  call('UNLINK', KEYS[k])
  call('ZREM', KEYS[3], ARGV[k - 2])
end
return dropped
