-- Drops segments above a limit of the stream, even unacked ones: their trees expire.
--
-- KEYS  1 entries        stream
--       2 subscriptions  hash (streams/includes/streams.lua)
--       3 drops          stream  segments, rows and reason of each drop, for people
--       ... payload, unacked  of each segment (lua/streams/log/note_segments.lua)
-- ARGV  1 why       the limit that they exceed
--       2 most      most kept drops
--       ... entry, rows, bytes  of each segment: rows that are counted (acker/streams/log/segments.py)
-- Returns the number of dropped segments. Bounded by the caller: at most 500 a call, each for at most 64
-- subscriptions.
--- @include "streams/includes/streams"
local dropped, rows = 0, 0
for k = 4, #KEYS, 2 do
  local payload, unacked, at = KEYS[k], KEYS[k + 1], 3 * (k - 4) / 2 + 2
  if stream.remove(KEYS[1], KEYS[2], ARGV[at + 1], ARGV[at + 3]) then
    local states = call('HGETALL', unacked)
    for s = 1, #states, 2 do
      if states[s + 1] == '1' then stream.count(KEYS[2], 'dropped:' .. states[s], ARGV[at + 2]) end
    end
    call('UNLINK', payload, unacked)
    dropped, rows = dropped + 1, rows + tonumber(ARGV[at + 2])
  end
end
stream.count(KEYS[2], 'dropped', dropped)
if dropped > 0 then
  redis.pcall('XADD', KEYS[3], 'MAXLEN', ARGV[2], '*', 'segments', dropped, 'rows', rows, 'why', ARGV[1])
end
return dropped
