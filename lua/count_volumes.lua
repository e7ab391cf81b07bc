-- Counts rows by key, about: where many were written in the last minutes, a stream that is read fairly has
-- lanes for them (acker/streams/fairness.py).
--
-- KEYS  1 volumes  string: a count-min sketch, counts of 32 bits. It is never too low for a key
-- ARGV  1 ttl      seconds after which counting begins anew
--       2 depth    counts of each key
--       ... rows, and the place of each of its counts  for each key
-- Returns for each key about how many rows of it were there before.
-- A copy of the call that comes late counts twice: that only moves rows to a lane of their own.
-- Bounded by the caller: at most 256 keys a call.
local call, depth, reply = redis.call, tonumber(ARGV[2]), {}
for at = 3, #ARGV, depth + 1 do
  local words, rows, least = {'OVERFLOW', 'SAT'}, ARGV[at], nil
  for k = 1, depth do
    for _, word in ipairs({'INCRBY', 'u32', '#' .. ARGV[at + k], rows}) do words[#words + 1] = word end
  end
  for _, count in ipairs(call('BITFIELD', KEYS[1], unpack(words))) do
    least = math.min(least or count, count)
  end
  reply[#reply + 1] = math.max(0, least - tonumber(rows))
end
if call('TTL', KEYS[1]) < 0 then call('EXPIRE', KEYS[1], ARGV[1]) end
return reply
