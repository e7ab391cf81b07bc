-- Notes that a commit is under way: while its heartbeat is young, none of its trees expires
-- (acker/streams/commits/under_way.py).
--
-- KEYS  1 committing  hash  <number> <writer>:at    last heartbeat of the commit's executor (ms)
--                           <number> <writer>:what  the work of the commit
-- ARGV  1 commit      number and writer
--       2 ttl         seconds for which the hash lives without a heartbeat
--       3 what        its work, at the begin; or empty: a heartbeat of a commit that has begun and not ended
-- Returns 1, or 0 if it has not begun, or has ended.
--- @chained true
local commit, what = ARGV[1], ARGV[3]
if what ~= '' then
  redis.call('HSET', KEYS[1], commit .. ':what', what)
elseif redis.call('HEXISTS', KEYS[1], commit .. ':what') == 0 then
  return 0
end
local instant = redis.call('TIME')
local now = instant[1] * 1000 + math.floor(instant[2] / 1000)
redis.call('HSET', KEYS[1], commit .. ':at', string.format('%.0f', now))
redis.call('EXPIRE', KEYS[1], ARGV[2])
return 1
