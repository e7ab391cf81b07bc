-- Gives a subscription its number. Numbers ascend in the order in which subscriptions were made, by random
-- steps from a random one on: so no store, whatever it has lost, gives a number to two of them, but for the
-- number that is set aside for the next one. Who claims says for whom (claim_segments.lua).
--
-- KEYS  1 subscriptions  hash (streams/includes/streams.lua)
--       2 entries        stream
-- ARGV  1 name
--       2 most           how many subscriptions a stream may have
--       3 number         random, below 2^52: of the first, where no segment was staged for that before
--       4 step           random, from 1 to 2^40
-- Returns the number, or an error where there are too many, or where the name is being dropped.
local name = 'name:' .. ARGV[1]
local number, following, slots = unpack(redis.call('HMGET', KEYS[1], name, 'next', 'slots'))
if number then
  if redis.call('HEXISTS', KEYS[1], 'slot:' .. number) == 1 then return tonumber(number) end
  return redis.error_reply('ACKER subscription ' .. ARGV[1] .. ' is being dropped')
end
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
local instant = redis.call('TIME')
redis.call('HDEL', KEYS[1], 'next')
redis.call('HSETNX', KEYS[1], 'life', ARGV[3])
redis.call('HSET', KEYS[1], name, number, 'slot:' .. number, ARGV[1], 'slots', slots .. number,
  'cursor:' .. number, cursor, 'made:' .. number, instant[1] * 1000 + math.floor(instant[2] / 1000))
return tonumber(number)
