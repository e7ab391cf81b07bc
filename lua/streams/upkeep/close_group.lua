-- Closes a group without remaining requests: no worker works on its later segments.
--
-- KEYS  1 progress   hash (lua/lines/note_arrivals.lua)
--       2 gone       sorted set (lua/streams/commits/release_bundle.lua)
--       ... gathered  stream of each task (lua/streams/commits/release_bundle.lua)
-- ARGV  1 ttl        seconds for which later segments of the group are known to be late
--       2 group
-- Returns 1, or 0 if segments wait for it, which are to be dropped first: nothing has changed.
-- Bounded: 64 tasks.
local call = redis.call
for k = 3, #KEYS do
  if call('XLEN', KEYS[k]) > 0 then return 0 end
end
local instant = call('TIME')
local now = instant[1] * 1000 + math.floor(instant[2] / 1000)
call('HSET', KEYS[1], 'released', string.format('%.0f', now))
call('HDEL', KEYS[1], 'over', 'acked')
call('EXPIRE', KEYS[1], ARGV[1])
call('ZADD', KEYS[2], now, ARGV[2])
call('EXPIRE', KEYS[2], ARGV[1])
return 1
