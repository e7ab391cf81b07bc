-- Removes a subscription from the list for new segments. Its name is kept until it is forgotten.
--
-- KEYS  1 subscriptions  hash (streams/includes/streams.lua)
--       2 removals       string: raised, so no late copy of a call makes it anew (streams/log/subscribe.lua)
-- ARGV  1 name
--       2 number         its number: a late copy of the call changes nothing of a later one of that name
--       3 forget         1: forget it, and its counts
--       4 ttl            seconds for which `removals` is kept
-- Returns 1, or 0 if there is none of that name and number.
local MOST_GONE = 65536 -- letters: some 3,800 of the latest
local number = redis.call('HGET', KEYS[1], 'name:' .. ARGV[1])
if number ~= ARGV[2] then return 0 end
redis.call('INCRBY', KEYS[2], 1)
redis.call('EXPIRE', KEYS[2], ARGV[4])
local left = {}
for slot in string.gmatch(redis.call('HGET', KEYS[1], 'slots') or '', '%d+') do -- at most 64
  if slot ~= number then left[#left + 1] = slot end
end
redis.call('HSET', KEYS[1], 'slots', table.concat(left, ','))
redis.call('HDEL', KEYS[1], 'slot:' .. number)
local gone = redis.call('HGET', KEYS[1], 'gone') or '' -- it tells a dropped one from a lost one
if not string.find(',' .. gone, ',' .. number .. ',', 1, true) then
  redis.call('HSET', KEYS[1], 'gone', string.sub(number .. ',' .. gone, 1, MOST_GONE))
end
if ARGV[3] == '1' and redis.call('HEXISTS', KEYS[1], 'external') == 1 then
  redis.call('HDEL', KEYS[1], 'received:' .. number, 'served:' .. number, 'ahead:' .. number,
    'passed:' .. number)
  for _, name in ipairs({'rows', 'unstamped', 'damaged', 'foreign', 'newer', 'over', 'untracked'}) do
    redis.call('HDEL', KEYS[1], 'seen_' .. name .. ':' .. number)
  end
end
if ARGV[3] == '1' then
  redis.call('HDEL', KEYS[1], 'name:' .. ARGV[1], 'cursor:' .. number, 'created:' .. number,
    'rows:' .. number, 'acked:' .. number, 'dropped:' .. number, 'late:' .. number, 'lanes:' .. number)
  local fair = false
  for _, slot in ipairs(left) do fair = fair or redis.call('HEXISTS', KEYS[1], 'lanes:' .. slot) == 1 end
  if not fair then redis.call('HDEL', KEYS[1], 'fair') end
end
return 1
