-- The tick: sets the oldest bucket aside and makes it the new nursery. O(1) for any number of trees.
--
-- KEYS  the shard's (includes/shard.lua), then expired:<rotation>, where the oldest bucket is set aside
-- ARGV  1 spouts
--       2 rotation         the number of rotations that the caller believes were made
--       3 period           ms between two rotations
--       4 writers_horizon  ms for which a silent writer is remembered
--       5 force            "1": rotate though the time has not come
-- Returns {rotated (0 or 1), rotations made, drained}: drained is the oldest rotation whose set may not be
--       empty yet. When the caller's rotation is not the shard's, nothing is done.
-- Any number of tickers may run: the server's clock and the rotation's number let one of them win.
--- @include "shard"
local rotation, period, horizon = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local UNDRAINED = 100 -- rotations that are drained again where it can not be read which ones were
local rotated_at, drained, writers_at = unpack(call('HMGET', CLOCK, 'rotated_at', 'drained', 'writers_at'))
rotated_at, writers_at = tonumber(rotated_at) or now + 1, tonumber(writers_at) or 0
if now < rotated_at then -- the server's clock was set back, or it can not be read: the period begins anew
  rotated_at = now
  call('HSET', CLOCK, 'rotated_at', now)
end
if rotation ~= rotations or (ARGV[5] ~= '1' and now - rotated_at < period) then
  return {0, rotations, tonumber(drained)}
end
drained = tonumber(drained) or math.max(0, rotations - UNDRAINED)
local oldest = (rotations + 1) % 3
if call('EXISTS', BUCKETS[oldest]) == 1 then
  call('RENAME', BUCKETS[oldest], KEYS[OWN])
elseif drained == rotations then
  drained = rotations + 1
end
local pending = tonumber(call('HGET', COUNTERS, 'bucket:' .. oldest) or 0)
counters.add('bucket:' .. oldest, -pending)
counters.add('expiring', pending)
counters.add('rotations', 1)
counters.flush()
call('HSET', CLOCK, 'rotations', rotations + 1, 'rotated_at', now, 'drained', drained)
if now - writers_at >= horizon then
  call('UNLINK', WRITERS_BEFORE)
  if call('EXISTS', WRITERS) == 1 then call('RENAME', WRITERS, WRITERS_BEFORE) end
  call('HSET', CLOCK, 'writers_at', now)
end
return {1, rotations + 1, drained}
