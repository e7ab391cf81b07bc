-- Publishes staged segments of a stream that gathers: they wait for the others of their group and task.
--
-- KEYS  1 gathering      sorted set: what waits, as "<group>:<task>", by when the first of it came (ms)
--       2 subscriptions  hash (includes/streams.lua)
--       ... gathered, progress, payload, owed  of each segment: the stream of what waits for its group and
--                        task (lua/release.lua), what is known of its group (lua/note_arrivals.lua), and
--                        those of lua/note_segments.lua
-- ARGV  1 ttl            seconds for which what waits is kept where nobody looks after it
--       ... place, record, rows, bytes, slots  of each segment: "<group>:<task>", and what
--                        acker/streams/segments.py says, the slots as "0,2"
-- Returns for each segment: 0 it came too late, its group has gone, and its rows were dropped; else which of
-- its slots were dropped before it was published (stream.gone), whose tuples are the caller's to end. An
-- error where no commit holds the rows of one (stream.lost).
-- A segment that is owed to someone was published before, one whose payload is gone was published and acked
-- before, or came too late: both are passed over.
-- Bounded by the caller: at most 500 segments a call.
--- @chained only(reply, 1, '0', '1')
--- @include "streams"
local reply, refusal = {}, stream.unreadable(KEYS[2]) or stream.lost(KEYS, 5, 4)
if refusal then return refusal end
local instant = call('TIME')
local now = instant[1] * 1000 + math.floor(instant[2] / 1000)
for n = 0, (#KEYS - 2) / 4 - 1 do
  local gathered, progress, payload, owed = unpack(KEYS, 4 * n + 3, 4 * n + 6)
  local at = 5 * n + 3
  local late = false
  if call('EXISTS', owed) == 0 and call('EXISTS', payload) == 1 then
    late = call('HEXISTS', progress, 'released') == 1
    if late then
      call('UNLINK', payload)
      stream.count(KEYS[2], 'too_late', ARGV[at + 1])
    elseif stream.publish(gathered, KEYS[2], owed, ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]) then
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
  reply[#reply + 1] = late and '0' or '1' .. stream.gone(owed)
end
return reply
