-- Closes a group of which no request is left: nobody works on what comes for it from now on.
--
-- KEYS  1 progress   hash (lua/note_arrivals.lua)
--       ... gathered  stream of each task (lua/release.lua)
-- ARGV  1 ttl        seconds for which what comes for the group later is known to be late
-- Returns 1, or 0 where something waits for it, which is to be dropped first: nothing has changed.
-- Bounded: 64 tasks.
local call = redis.call
for k = 2, #KEYS do
  if call('XLEN', KEYS[k]) > 0 then return 0 end
end
local now = call('TIME')
call('HSET', KEYS[1], 'released', string.format('%.0f', now[1] * 1000 + math.floor(now[2] / 1000)))
call('HDEL', KEYS[1], 'over', 'acked')
call('EXPIRE', KEYS[1], ARGV[1])
return 1
