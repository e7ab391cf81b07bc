-- Takes a subscription out of the list that new segments are for. Its name is kept until it is forgotten.
--
-- KEYS  1 subscriptions  hash (streams/includes/streams.lua)
-- ARGV  1 name
--       2 forget         1: forget it, and its counts
-- Returns its number, or -1 where there is none of that name.
local number = redis.call('HGET', KEYS[1], 'name:' .. ARGV[1])
if not number then return -1 end
local left = {}
for slot in string.gmatch(redis.call('HGET', KEYS[1], 'slots') or '', '%d+') do -- at most 64
  if slot ~= number then left[#left + 1] = slot end
end
redis.call('HSET', KEYS[1], 'slots', table.concat(left, ','))
redis.call('HDEL', KEYS[1], 'slot:' .. number)
if ARGV[2] == '1' then
  redis.call('HDEL', KEYS[1], 'name:' .. ARGV[1], 'cursor:' .. number, 'made:' .. number, 'rows:' .. number,
    'acked:' .. number, 'dropped:' .. number, 'late:' .. number, 'lanes:' .. number)
  local fair = false
  for _, slot in ipairs(left) do fair = fair or redis.call('HEXISTS', KEYS[1], 'lanes:' .. slot) == 1 end
  if not fair then redis.call('HDEL', KEYS[1], 'fair') end
end
return tonumber(number)
