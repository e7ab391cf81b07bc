-- Gives a subscription of an external stream another name. Its rows, bits and open segments go by its number,
-- which stays.
--
-- KEYS  1 subscriptions  hash (streams/includes/streams.lua)
--       2 removals       string (store/includes/late.lua): raised, so no late copy of a call makes the
--                        earlier name anew
-- ARGV  1 name
--       2 new       its new name
--       3 removals  as the caller has read it, or empty
--       4 until     ms of the server's clock
--       5 ttl       seconds for which `removals` is kept
-- Returns its number. An error ACKER where nothing has changed: MISSING the stream has no such subscription,
-- MANAGED it is not external, TAKEN it has one of the new name, SERVED with a live step and the milliseconds
-- that it has left, LATE something was removed since the caller has read `removals`, or it is after `until`.
--- @include "store/includes/late"
local call = redis.call
local instant = call('TIME')
local now = instant[1] * 1000 + math.floor(instant[2] / 1000)
local refused = late(KEYS[2], ARGV[3], ARGV[4])
if refused then return refused end
local number = call('HGET', KEYS[1], 'name:' .. ARGV[1])
if not number or call('HEXISTS', KEYS[1], 'slot:' .. number) == 0 then
  return redis.error_reply('ACKER MISSING')
end
if call('HEXISTS', KEYS[1], 'external') == 0 then return redis.error_reply('ACKER MANAGED') end
if call('HEXISTS', KEYS[1], 'name:' .. ARGV[2]) == 1 then return redis.error_reply('ACKER TAKEN') end
-- Bounded: a subscription has at most 64 steps.
local served = call('HGET', KEYS[1], 'served:' .. number) or ''
for step, till in string.gmatch(served, '([^ ,]+) (%d+) [01]') do
  local left = tonumber(till) - now
  if left > 0 then
    return redis.error_reply('ACKER SERVED ' .. step .. ' ' .. string.format('%.0f', left))
  end
end
call('INCRBY', KEYS[2], 1)
call('EXPIRE', KEYS[2], ARGV[5])
call('HDEL', KEYS[1], 'name:' .. ARGV[1])
call('HSET', KEYS[1], 'name:' .. ARGV[2], number, 'slot:' .. number, ARGV[2])
return tonumber(number)
