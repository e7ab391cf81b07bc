-- Gives a spout its number in its topology: 0, 1, 2 ... in the order of their first registration.
--
-- KEYS  1 config  hash
-- ARGV  1 field   "spout:<name>"
--       2 most    how many spouts a topology may have
-- Returns the number, or an error where there are too many.
local number = redis.call('HGET', KEYS[1], ARGV[1])
if number then return tonumber(number) end
local count = tonumber(redis.call('HGET', KEYS[1], 'spouts') or 0)
if count >= tonumber(ARGV[2]) then
  return redis.error_reply('ACKER the topology has ' .. count .. ' spouts already, its most')
end
redis.call('HSET', KEYS[1], ARGV[1], count, 'spouts', count + 1)
return count
