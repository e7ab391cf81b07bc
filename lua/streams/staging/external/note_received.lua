-- Notes how far a subscription of an external stream has come, and what its rows carried.
--
-- KEYS  1 subscriptions  hash (streams/includes/streams.lua)
--       2 marker         string: this was noted
-- ARGV  1 slot
--       2 newest  when the newest segment was begun that rows were received of (Unix seconds); 0 for none
--       3 ttl     seconds for which the marker is there
--       ... name, count  of each count of the subscription
-- Returns 1, or 0 where it was noted before. An error ACKER UNKNOWN where the subscription was dropped.
--- @chained true
--- @include "streams/includes/streams"
local slot = ARGV[1]
if call('HEXISTS', KEYS[1], 'slot:' .. slot) == 0 then return redis.error_reply('ACKER UNKNOWN') end
if not call('SET', KEYS[2], 1, 'NX', 'EX', ARGV[3]) then return 0 end
local newest = math.min(tonumber(ARGV[2]), tonumber(call('TIME')[1]))
local before = tonumber(call('HGET', KEYS[1], 'received:' .. slot) or 0) or 0
if newest > before then call('HSET', KEYS[1], 'received:' .. slot, string.format('%.0f', newest)) end
for k = 4, #ARGV, 2 do stream.count(KEYS[1], ARGV[k] .. ':' .. slot, ARGV[k + 1]) end
return 1
