-- Notes that a subscription acked segments, or will never ask for their rows again.
--
-- KEYS  1 entries        stream
--       2 subscriptions  hash (streams/includes/streams.lua)
--       3 delivered      stream (lua/streams/log/claim_segments.lua)
--       ... payload, unacked  of each segment; unacked is a hash: slot -> 1 published for it, 2 acked by it,
--                        0, x and l gone before it was published (streams.lua); a slot that will not ask
--                        again is removed
-- ARGV  1 slot
--       2 forget         0: they are acked; 1: acked ones will not be asked for again
--       3 ttl            seconds for which rows acked by all wait to be forgotten
--       ... number, entry, rows, bytes  of each segment: its number among the delivered, the id of its entry,
--                        and its counted rows (acker/streams/log/segments.py)
-- Returns the number of segments with a new note. An entry goes with its last ack, its rows when all have
-- forgotten them.
-- Bounded by the caller: at most 500 segments a call, each for at most 64 subscriptions.
--- @chained true
--- @include "streams/includes/streams"
local slot, forget, ttl, new = ARGV[1], ARGV[2] == '1', tonumber(ARGV[3]), 0
for k = 4, #KEYS, 2 do
  local payload, unacked, at = KEYS[k], KEYS[k + 1], 2 * k - 5
  local n, id, rows, bytes = ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4]
  local state = call('HGET', unacked, slot)
  if forget and state ~= '1' then
    new = new + call('XDEL', KEYS[3], n .. '-0')
    if state then call('HDEL', unacked, slot) end
    if call('EXISTS', unacked) == 0 then call('UNLINK', payload) end
  elseif not forget and state == '1' then
    new = new + 1
    call('HSET', unacked, slot, '2')
    stream.count(KEYS[2], 'acked:' .. slot, rows)
    local acked = true
    for _, other in ipairs(call('HVALS', unacked)) do acked = acked and other ~= '1' end
    if acked then
      stream.remove(KEYS[1], KEYS[2], id, bytes)
      call('EXPIRE', payload, ttl)
      call('EXPIRE', unacked, ttl + 60) -- longer than the payload: without it that would look unpublished
    end
  end
end
return new
