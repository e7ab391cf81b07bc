-- Releases the gathered segments of a group's task: from now on readers of the stream see them as one bundle.
--
-- KEYS  1 entries        stream
--       2 subscriptions  hash (streams/includes/streams.lua)
--       3 gathered       stream: waiting segments of the group and the task; the fields of `entries`
--       4 progress       hash (lua/lines/note_arrivals.lua)
--       5 payload, 6 unacked  of the segment that ends the bundle (lua/streams/log/note_segments.lua)
--       7 gathering      sorted set (lua/streams/commits/gather.lua)
--       8 gone           sorted set: released groups, by their times (ms), until these are forgotten
-- ARGV  1 ttl            seconds for which later segments of the group are known to be late
--       2 record, 3 rows, 4 bytes, 5 slots  of that segment
--       6 place          "<group>:<task>"
--       7 light          most rows of a bundle in lane 0, if the stream is read fairly; each further lane has
--                        32 times as many
-- Returns {true if it was released now, the slots of the last segment that were dropped before
-- (stream.gone)}.
-- An error if no commit holds the rows of that segment (stream.lost). The same again changes nothing. The
-- members of a bundle stand side by side; each except the last has the field bundle, as "<members after it>
-- <rows from it on>".
-- Bounded: 450 segments at most; a group with more is dropped (acker/lines/coordinator.py).
--- @chained reply[2] == ''
--- @include "streams/includes/streams"
local refusal = stream.unreadable(KEYS[2]) or stream.lost(KEYS, 5, 3)
if refusal then return refusal end
if call('EXISTS', KEYS[6]) == 1 or call('EXISTS', KEYS[5]) == 0 then return {0, stream.gone(KEYS[6])} end
if call('HEXISTS', KEYS[4], 'released') == 0 then -- another task of the group may have been released before
  local now = call('TIME')
  call('HSET', KEYS[4], 'released', string.format('%.0f', now[1] * 1000 + math.floor(now[2] / 1000)))
end
call('HDEL', KEYS[4], 'over', 'acked')
call('EXPIRE', KEYS[4], ARGV[1])
local instant = call('TIME')
call('ZADD', KEYS[8], instant[1] * 1000 + math.floor(instant[2] / 1000), string.match(ARGV[6], '^%x+'))
call('EXPIRE', KEYS[8], ARGV[1])
local found, rows = call('XRANGE', KEYS[3], '-', '+', 'COUNT', 450), tonumber(ARGV[3])
for _, one in ipairs(found) do rows = rows + (tonumber(one[2][4]) or 0) end
stream.count(KEYS[2], 'waiting', tonumber(ARGV[3]) - rows)
local lane, most = 0, tonumber(ARGV[7])
if call('HEXISTS', KEYS[2], 'fair') == 1 then
  while lane < 3 and rows >= most do lane, most = lane + 1, 32 * most end
end
local laned = lane > 0 and {'lane', lane} or {}
for k, one in ipairs(found) do
  local fields = one[2]
  call('XADD', KEYS[1], '*', 'segment', fields[2], 'rows', fields[4], 'slots', fields[6],
    'bundle', (#found - k + 1) .. ' ' .. rows, unpack(laned))
  rows = rows - (tonumber(fields[4]) or 0)
end
call('UNLINK', KEYS[3])
call('ZREM', KEYS[7], ARGV[6])
if stream.publish(KEYS[1], KEYS[2], KEYS[6], ARGV[2], ARGV[3], ARGV[4], ARGV[5], tostring(lane), true) then
  call('PERSIST', KEYS[5])
else
  local left = call('TTL', KEYS[5])
  if left > 0 then call('EXPIRE', KEYS[6], left) end
end
return {1, stream.gone(KEYS[6])}
