-- Gives a subscription its number. Numbers ascend in the order in which subscriptions were made, by random
-- steps from a random one on. So no store gives a number to two of them, even after a loss, except the number
-- that is reserved for the next one. Each claim names its subscription (claim_segments.lua).
--
-- KEYS  1 subscriptions  hash (streams/includes/streams.lua)
--       2 entries        stream
--       3 removals       string: how often the stream, or a subscription of it, was removed lately
-- ARGV  1 name
--       2 most           most subscriptions of a stream
--       3 number         random, below 2^52: for the first, if no segment was staged for it before
--       4 step           random, from 1 to 2^40
--       5 removals       as the caller has read it, or empty
--       6 until          ms of the server's clock
-- Returns the number, or an error if there are too many, or if the name is being dropped. An error ACKER LATE
-- if the stream, or a subscription of it, was removed since the caller has read `removals`, or after `until`:
-- a late copy of the call makes nothing anew.
--- @include "store/includes/late"
local name = 'name:' .. ARGV[1]
local number, following, slots = unpack(redis.call('HMGET', KEYS[1], name, 'next', 'slots'))
if number then
  if redis.call('HEXISTS', KEYS[1], 'slot:' .. number) == 1 then return tonumber(number) end
  return redis.error_reply('ACKER subscription ' .. ARGV[1] .. ' is being dropped')
end
local refused = late(KEYS[3], ARGV[5], ARGV[6])
if refused then return refused end
number, slots = following or ARGV[3], slots or ''
local cursor, members = '0-0', 0
if slots ~= '' then
  local highest = 0
  for slot in string.gmatch(slots, '[^,]+') do -- at most 64
    members, highest = members + 1, math.max(highest, tonumber(slot) or 0)
  end
  if members >= tonumber(ARGV[2]) then
    return redis.error_reply('ACKER the stream has ' .. members .. ' subscriptions already, its most')
  end
  number = string.format('%.0f', highest + tonumber(ARGV[4]))
  local last = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)[1]
  cursor = last and last[1] or cursor -- what was staged before is not for it: it need not be looked at
  slots = slots .. ','
elseif not string.match(number, '^%d+$') then
  return redis.error_reply('UNREADABLE the number of the next subscription of ' .. KEYS[1])
end
redis.call('HDEL', KEYS[1], 'next')
redis.call('HSETNX', KEYS[1], 'epoch', ARGV[3])
local instant = redis.call('TIME')
redis.call('HSET', KEYS[1], name, number, 'slot:' .. number, ARGV[1], 'slots', slots .. number,
  'cursor:' .. number, cursor, 'created:' .. number, instant[1] * 1000 + math.floor(instant[2] / 1000))
return tonumber(number)
