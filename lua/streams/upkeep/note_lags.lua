-- Notes how far the present subscriptions of an external stream are, where the stream is still there.
--
-- KEYS  1 subscriptions  hash (streams/includes/streams.lua): its `ahead` and `passed`
-- ARGV  ... slot, ahead, passed  of each subscription
-- Returns how many of them are there.
-- Bounded by the caller: at most 64 subscriptions a call.
local call, noted = redis.call, 0
for k = 1, #ARGV, 3 do
  local slot = ARGV[k]
  if call('HEXISTS', KEYS[1], 'slot:' .. slot) == 1 then
    call('HSET', KEYS[1], 'ahead:' .. slot, ARGV[k + 1], 'passed:' .. slot, ARGV[k + 2])
    noted = noted + 1
  end
end
return noted
