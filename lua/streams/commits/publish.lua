-- Publishes staged segments: from now on the readers of the stream see them.
--
-- KEYS  1 entries        stream
--       2 subscriptions  hash (streams/includes/streams.lua)
--       ... payload, owed               of each segment (lua/streams/log/note_segments.lua)
-- ARGV  ... record, rows, bytes, slots, lane  of each segment (segments.py), the slots as "0,2"
-- Returns how many were published; then for each segment which of its slots were dropped before that
-- (stream.gone), whoever published it: their tuples are the caller's to end. An error where no commit holds
-- the rows of one (stream.lost).
-- A segment that is owed to someone was published before, one whose payload is gone was published and acked
-- before: both are passed over. One that is for nobody any more is kept only until its trees have failed.
-- Bounded by the caller: at most 500 segments a call.
--- @chained only(reply, 2, '')
--- @include "streams/includes/streams"
local reply, published = {0}, 0
local refusal = stream.unreadable(KEYS[2]) or stream.lost(KEYS, 3, 2)
if refusal then return refusal end
for k = 3, #KEYS, 2 do
  local payload, owed, at = KEYS[k], KEYS[k + 1], 5 * (k - 3) / 2
  if call('EXISTS', owed) == 0 and call('EXISTS', payload) == 1 then
    if stream.publish(KEYS[1], KEYS[2], owed, unpack(ARGV, at + 1, at + 5)) then
      call('PERSIST', payload)
      published = published + 1
    else
      local left = call('TTL', payload)
      if left > 0 then call('EXPIRE', owed, left) end
    end
  end
  reply[#reply + 1] = stream.gone(owed)
end
reply[1] = published
return reply
