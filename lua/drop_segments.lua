-- Drops segments that a stream has no room or no time for, whoever has not acked them: their trees expire.
--
-- KEYS  1 entries        stream
--       2 subscriptions  hash (includes/streams.lua)
--       ... payload, owed     of each segment (lua/settle_segments.lua)
-- ARGV  ... entry, rows, bytes  of each segment
-- Returns how many there were. Bounded by the caller: at most 500 a call, each for at most 64
-- subscriptions.
--- @include "streams"
local dropped = 0
for k = 3, #KEYS, 2 do
  local payload, owed, at = KEYS[k], KEYS[k + 1], 3 * (k - 3) / 2
  if stream.remove(KEYS[1], KEYS[2], ARGV[at + 1], ARGV[at + 3]) then
    local states = call('HGETALL', owed)
    for s = 1, #states, 2 do
      if states[s + 1] == '1' then stream.count(KEYS[2], 'dropped:' .. states[s], ARGV[at + 2]) end
    end
    call('UNLINK', payload, owed)
    dropped = dropped + 1
  end
end
stream.count(KEYS[2], 'dropped', dropped)
return dropped
