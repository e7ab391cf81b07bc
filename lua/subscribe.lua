-- Gives a subscription its number: 0, 1, 2 ... in the order of their first registration.
--
-- KEYS  1 subscriptions  hash (includes/streams.lua)
--       2 entries        stream
-- ARGV  1 name
--       2 most           how many subscriptions a stream may have
-- Returns the number, or an error where there are too many, or where the name is being dropped.
local name = 'name:' .. ARGV[1]
local number, following, slots = unpack(redis.call('HMGET', KEYS[1], name, 'next', 'slots'))
if number then
  if redis.call('HEXISTS', KEYS[1], 'slot:' .. number) == 1 then return tonumber(number) end
  return redis.error_reply('ACKER subscription ' .. ARGV[1] .. ' is being dropped')
end
following, slots = following or '0', slots or ''
local _, commas = string.gsub(slots, ',', '')
if slots ~= '' and commas + 1 >= tonumber(ARGV[2]) then
  return redis.error_reply('ACKER the stream has ' .. commas + 1 .. ' subscriptions already, its most')
end
local cursor = '0-0'
if slots ~= '' then -- what was staged before is not for it: it need not be looked at
  local last = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)[1]
  cursor = last and last[1] or cursor
  slots = slots .. ','
end
local instant = redis.call('TIME')
redis.call('HSET', KEYS[1], name, following, 'slot:' .. following, ARGV[1], 'next', tonumber(following) + 1,
  'slots', slots .. following, 'cursor:' .. following, cursor,
  'made:' .. following, instant[1] * 1000 + math.floor(instant[2] / 1000))
return tonumber(following)
