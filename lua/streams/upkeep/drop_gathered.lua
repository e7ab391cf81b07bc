-- Drops segments that wait in a stream that gathers. Their rows and vectors are the caller's: whoever would
-- be given them must not ack them any more.
--
-- KEYS  1 subscriptions  hash (streams/includes/streams.lua)
--       2 gathering      sorted set (lua/streams/commits/gather.lua)
--       3 drops          stream (lua/streams/upkeep/drop_segments.lua)
--       ... gathered, payload, owed  of each segment: where it waits, and those of note_segments.lua
-- ARGV  1 why       over which limit they are; empty: they came too late, for their requests are over
--       2 most      drops that are kept
--       3 slot      of the only subscription that they are dropped for; empty: for all
--       ... place, entry, rows, bytes  of each segment: "<group>:<task>", and the id of its entry there
-- Returns how many went. The same again changes nothing, and what was released meanwhile stays.
-- Bounded by the caller: at most 100 segments a call, each for at most 64 subscriptions.
--- @include "streams/includes/streams"
local slot, dropped, rows, emptied = ARGV[3], 0, 0, {}
for k = 4, #KEYS, 3 do
  local gathered, payload, owed, at = KEYS[k], KEYS[k + 1], KEYS[k + 2], 4 * (k - 4) / 3 + 3
  local place, entry, of = ARGV[at + 1], ARGV[at + 2], tonumber(ARGV[at + 3])
  if #call('XRANGE', gathered, entry, entry) == 1 then
    local states, others = call('HGETALL', owed), false
    for s = 1, #states, 2 do
      if slot ~= '' and states[s] ~= slot then others = others or states[s + 1] == '1' end
      if slot == '' and states[s + 1] == '1' then stream.count(KEYS[1], 'dropped:' .. states[s], of) end
    end
    if others then
      call('HDEL', owed, slot)
    else
      call('XDEL', gathered, entry)
      call('UNLINK', payload, owed)
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
