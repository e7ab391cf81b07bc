-- Counts rows by key, approximately: a stream that is read fairly has lanes for keys with many rows in the
-- last minutes (acker/streams/log/fairness.py).
--
-- KEYS  1 volumes  string: a count-min sketch, counts of 32 bits. It is never too low for a key
-- ARGV  1 ttl      seconds after which counting begins anew
--       ... rows, places  of each key: the number of new rows, and the places of its counts, as "3 17 99"
-- Returns for each key its approximate number of rows before.
-- A copy of the call that comes late counts twice: that only moves rows to a lane of their own.
-- Bounded by the caller: at most 256 keys a call.
local call, reply = redis.call, {}
for at = 2, #ARGV, 2 do
  local words, rows, least = {'OVERFLOW', 'SAT'}, ARGV[at], nil
  for place in string.gmatch(ARGV[at + 1], '%d+') do -- 4
    for _, word in ipairs({'INCRBY', 'u32', '#' .. place, rows}) do words[#words + 1] = word end
  end
  for _, count in ipairs(call('BITFIELD', KEYS[1], unpack(words))) do
    least = math.min(least or count, count)
  end
  reply[#reply + 1] = math.max(0, least - tonumber(rows))
end
if call('TTL', KEYS[1]) < 0 then call('EXPIRE', KEYS[1], ARGV[1]) end
return reply
