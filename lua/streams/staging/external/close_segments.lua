-- Takes entries of external segments out of their stream: nobody has anything to ack of them any more.
--
-- KEYS  1 entries        stream
--       2 subscriptions  hash (streams/includes/streams.lua)
-- ARGV  ... entry, rows, bytes, acked, dropped  of each: its id, its rows, the bytes that it counts for, and
--               the slots, as "0,2", that have acked it, and that never will
-- Returns how many were there.
-- Bounded by the caller: at most 500 entries a call, each for at most 64 subscriptions.
--- @include "streams/includes/streams"
local closed = 0
for k = 1, #ARGV, 5 do
  local entry, rows = ARGV[k], ARGV[k + 1]
  if stream.remove(KEYS[1], KEYS[2], entry, ARGV[k + 2]) then
    closed = closed + 1
    for slot in string.gmatch(ARGV[k + 3], '[^,]+') do stream.count(KEYS[2], 'acked:' .. slot, rows) end
    for slot in string.gmatch(ARGV[k + 4], '[^,]+') do stream.count(KEYS[2], 'dropped:' .. slot, rows) end
  end
end
return closed
