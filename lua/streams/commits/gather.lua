-- Publishes staged segments of a gathering stream: they wait for the others of their group and task.
-- A finished group would keep them for ever. The end of a group is remembered for some time only, so the
-- caller gives the time when it saw the group open.
--
-- KEYS  1 gathering      sorted set: waiting bundles, as "<group>:<task>", by the first arrival (ms)
--       2 subscriptions  hash (streams/includes/streams.lua)
--       ... gathered, progress, payload, unacked  of each segment: the stream of waiting segments of its
--                        group and task (release_bundle.lua), the progress of its group
--                        (note_arrivals.lua), and the keys of lua/streams/log/note_segments.lua
-- ARGV  1 ttl            seconds for which waiting segments are kept without a coordinator
--       2 known          ms for which the end of a group is remembered, at least
--       ... place, record, rows, bytes, slots, open  of each segment: "<group>:<task>", and the
--                        values of segments.py, the slots as "0,2"; the time when its group was seen
--                        open, by this server's clock (ms); 0: it is over; "now": by the same chain
-- Returns for each segment: 0 it came too late, its group has gone, and its rows were dropped; 2 its group
-- was read too long ago, and nothing was done; otherwise 1 and its slots that were dropped before it was
-- published (stream.gone), whose tuples the caller ends. An error if no commit holds the rows of a segment
-- (stream.lost).
-- A segment whose `unacked` exists was published before; a segment whose payload is gone was published and
-- acked before, or came too late: both are passed over.
-- Bounded by the caller: at most 500 segments a call.
--- @chained only(reply, 1, '0', '1')
--- @include "streams/includes/streams"
local reply, refusal = {}, stream.unreadable(KEYS[2]) or stream.lost(KEYS, 5, 4)
if refusal then return refusal end
local instant = call('TIME')
local now = instant[1] * 1000 + math.floor(instant[2] / 1000)
for n = 0, (#KEYS - 2) / 4 - 1 do
  local gathered, progress, payload, unacked = unpack(KEYS, 4 * n + 3, 4 * n + 6)
  local at = 6 * n + 4
  local open, said = ARGV[at + 4], '1'
  if call('EXISTS', unacked) == 0 and call('EXISTS', payload) == 1 then
    if open == '0' or call('HEXISTS', progress, 'released') == 1 then
      said = '0'
      call('UNLINK', payload)
      stream.count(KEYS[2], 'too_late', ARGV[at + 1])
    elseif open ~= 'now' and now - open > tonumber(ARGV[2]) then
      said = '2'
    elseif stream.publish(gathered, KEYS[2], unacked, unpack(ARGV, at, at + 3)) then
      stream.count(KEYS[2], 'waiting', ARGV[at + 1])
      call('PERSIST', payload)
      call('EXPIRE', gathered, ARGV[1])
      call('ZADD', KEYS[1], 'NX', now, ARGV[at - 1])
      call('EXPIRE', KEYS[1], ARGV[1])
    else
      local left = call('TTL', payload)
      if left > 0 then call('EXPIRE', unacked, left) end
    end
  end
  reply[#reply + 1] = said == '1' and '1' .. stream.gone(unacked) or said
end
return reply
