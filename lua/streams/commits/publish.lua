-- Publishes staged segments: from now on the readers of the stream see them.
--
-- KEYS  1 entries        stream
--       2 subscriptions  hash (streams/includes/streams.lua)
--       ... payload, unacked            of each segment (lua/streams/log/note_segments.lua)
-- ARGV  ... record, rows, bytes, slots, lane  of each segment (segments.py), the slots as "0,2"
-- Returns the number of published segments; then for each segment its slots that were dropped before its
-- publication, by this or an earlier call (stream.gone): the caller ends their tuples. An error if no commit
-- holds the rows of a segment (stream.lost).
-- A segment whose `unacked` exists was published before; a segment whose payload is gone was published and
-- acked before: both are passed over. A segment without a subscription is kept only until its trees failed.
-- Bounded by the caller: at most 500 segments a call.
--- @chained only(reply, 2, '')
--- @include "streams/includes/streams"
local reply, published = {0}, 0
local refusal = stream.unreadable(KEYS[2]) or stream.lost(KEYS, 3, 2)
if refusal then return refusal end
for k = 3, #KEYS, 2 do
  local payload, unacked, at = KEYS[k], KEYS[k + 1], 5 * (k - 3) / 2
  if call('EXISTS', unacked) == 0 and call('EXISTS', payload) == 1 then
    if stream.publish(KEYS[1], KEYS[2], unacked, unpack(ARGV, at + 1, at + 5)) then
      call('PERSIST', payload)
      published = published + 1
    else
      local left = call('TTL', payload)
      if left > 0 then call('EXPIRE', unacked, left) end
    end
  end
  reply[#reply + 1] = stream.gone(unacked)
end
reply[1] = published
return reply
