-- Drops segments that wait in a gathering stream. The caller takes their rows and vectors: no reader may ack
-- them from then on.
--
-- KEYS  1 subscriptions  hash (streams/includes/streams.lua)
--       2 gathering      sorted set (lua/streams/commits/gather.lua)
--       3 drops          stream (lua/streams/upkeep/drop_segments.lua)
--       ... gathered, payload, unacked  of each segment: its waiting place, and the keys of note_segments.lua
-- ARGV  1 why       the limit that they exceed; empty: they came too late, because their requests are over
--       2 most      most kept drops
--       3 slot      the only subscription that they are dropped for; empty: all
--       ... place, entry, rows, bytes  of each segment: "<group>:<task>", and the id of its entry there
-- Returns the number of dropped segments. The same again changes nothing; released segments stay.
-- Bounded by the caller: at most 100 segments a call, each for at most 64 subscriptions.
--- @include "streams/includes/streams"
local slot, dropped, rows, emptied = ARGV[3], 0, 0, {}
for k = 4, #KEYS, 3 do
  local gathered, payload, unacked, at = KEYS[k], KEYS[k + 1], KEYS[k + 2], 4 * (k - 4) / 3 + 3
  local place, entry, of = ARGV[at + 1], ARGV[at + 2], tonumber(ARGV[at + 3])
  if #call('XRANGE', gathered, entry, entry) == 1 then
    local states, others = call('HGETALL', unacked), false
    for s = 1, #states, 2 do
      if slot ~= '' and states[s] ~= slot then others = others or states[s + 1] == '1' end
      if slot == '' and states[s + 1] == '1' then stream.count(KEYS[1], 'dropped:' .. states[s], of) end
    end
    if others then
      call('HDEL', unacked, slot)
    else
      call('XDEL', gathered, entry)
      call('UNLINK', payload, unacked)
      stream.count(KEYS[1], 'segments', -1)
      stream.count(KEYS[1], 'bytes', 0 - ARGV[at + 4])
      stream.count(KEYS[1], 'waiting', 0 - of)
      dropped, rows, emptied[gathered] = dropped + 1, rows + of, place
    end
  end
end
for gathered, place in pairs(emptied) do
  local first = call('XRANGE', gathered, '-', '+', 'COUNT', 1)[1]
  if first then
    call('ZADD', KEYS[2], 'XX', string.match(first[1], '^%d+'), place)
  else
    call('UNLINK', gathered)
    call('ZREM', KEYS[2], place)
  end
end
if dropped > 0 and slot == '' then
  if ARGV[1] == '' then
    stream.count(KEYS[1], 'too_late', rows)
  else
    stream.count(KEYS[1], 'dropped', dropped)
    redis.pcall('XADD', KEYS[3], 'MAXLEN', ARGV[2], '*', 'segments', dropped, 'rows', rows, 'why', ARGV[1])
  end
end
return dropped
