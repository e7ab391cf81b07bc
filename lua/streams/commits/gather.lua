-- Publishes staged segments of a stream that gathers: they wait for the others of their group and task.
-- A group that is over would keep them for ever. It is known to be over for some time only, so the caller
-- says when it has seen that it was not.
--
-- KEYS  1 gathering      sorted set: what waits, as "<group>:<task>", by when the first of it came (ms)
--       2 subscriptions  hash (streams/includes/streams.lua)
--       ... gathered, progress, payload, owed  of each segment: the stream of what waits for its group and
--                        task (release.lua), what is known of its group (note_arrivals.lua), and
--                        those of lua/streams/log/note_segments.lua
-- ARGV  1 ttl            seconds for which what waits is kept where nobody looks after it
--       2 known          ms for which it is known at least that a group is over
--       ... place, record, rows, bytes, slots, open  of each segment: "<group>:<task>", and what
--                        segments.py says, the slots as "0,2"; when its group was seen to be
--                        open, by this server's clock (ms); 0: it is over; "now": by the same chain
-- Returns for each segment: 0 it came too late, its group has gone, and its rows were dropped; 2 its group
-- was looked at too long ago, and nothing was done; else 1 and which of its slots were dropped before it was
-- published (stream.gone), whose tuples are the caller's to end. An error where no commit holds the rows of
-- one (stream.lost).
-- A segment that is owed to someone was published before, one whose payload is gone was published and acked
-- before, or came too late: both are passed over.
-- Bounded by the caller: at most 500 segments a call.
--- @chained only(reply, 1, '0', '1')
--- @include "streams/includes/streams"
local reply, refusal = {}, stream.unreadable(KEYS[2]) or stream.lost(KEYS, 5, 4)
if refusal then return refusal end
local instant = call('TIME')
local now = instant[1] * 1000 + math.floor(instant[2] / 1000)
for n = 0, (#KEYS - 2) / 4 - 1 do
  local gathered, progress, payload, owed = unpack(KEYS, 4 * n + 3, 4 * n + 6)
  local at = 6 * n + 4
  local open, said = ARGV[at + 4], '1'
  if call('EXISTS', owed) == 0 and call('EXISTS', payload) == 1 then
    if open == '0' or call('HEXISTS', progress, 'released') == 1 then
      said = '0'
      call('UNLINK', payload)
      stream.count(KEYS[2], 'too_late', ARGV[at + 1])
    elseif open ~= 'now' and now - open > tonumber(ARGV[2]) then
      said = '2'
    elseif stream.publish(gathered, KEYS[2], owed, unpack(ARGV, at, at + 3)) then
      stream.count(KEYS[2], 'waiting', ARGV[at + 1])
      call('PERSIST', payload)
      call('EXPIRE', gathered, ARGV[1])
      call('ZADD', KEYS[1], 'NX', now, ARGV[at - 1])
      call('EXPIRE', KEYS[1], ARGV[1])
    else
      local left = call('TTL', payload)
      if left > 0 then call('EXPIRE', owed, left) end
    end
  end
  reply[#reply + 1] = said == '1' and '1' .. stream.gone(owed) or said
end
return reply
