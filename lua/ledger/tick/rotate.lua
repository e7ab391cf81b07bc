-- The tick: sets the oldest bucket aside and makes it the new nursery. O(1) for any number of trees.
--
-- KEYS  keys of ledger/includes/shard.lua, then
--       1 expired          set of the rotation, which receives the oldest bucket
--       2 marks            the hash that the next rotation replaces (ledger/includes/marks.lua)
-- ARGV  1 spouts
--       2 rotation         the number of rotations that the caller knows of
--       3 period           ms between two rotations
--       4 writers_horizon  ms for which a silent writer is remembered
--       5 force            "1": rotate before the time has come
--       6 stamp, 7 age     a rotation that the caller knows, and its age by its monotonic clock (ms)
--       8 trust            "1": a caller that has measured nothing yet takes the server's clock
-- Returns {rotated (0 or 1), rotations made, drained, stamp, age}: drained is the oldest rotation whose set
--       may not be empty yet; stamp and age (ms) are of the last rotation. When the caller's rotation is not
--       the shard's, nothing is rotated.
-- Any number of tickers may run: the rotation's number lets one of them win.
-- The server's clock may step. So the age of the last rotation is the largest measurement of any ticker: it
-- is never more than the true age, and time without a ticker does not count.
--- @include "ledger/includes/shard"
local rotation, period, horizon = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local UNDRAINED = 100 -- rotations that are drained again where it cannot be read which ones were
local rotated_at, drained, measured, passed, writers_at =
  unpack(call('HMGET', CLOCK, 'rotated_at', 'drained', 'measured', 'passed', 'writers_at'))

-- A stamp names one rotation for ever, even if the store loses the rotation and makes it again.
local function stamp_of(number)
  return number .. ' ' .. instant[1] .. ' ' .. instant[2]
end

local stamp, age = string.match(measured or '', '^(%d+ %d+ %d+) (%d+)$')
if tonumber(string.match(stamp or '', '^%d+')) ~= rotations then
  stamp, age = stamp_of(rotations), 0
end
age = tonumber(age)
if ARGV[6] == stamp then age = math.max(age, tonumber(ARGV[7])) end
if ARGV[8] == '1' then age = math.max(age, now - (tonumber(rotated_at) or now)) end
local due = rotation == rotations and (ARGV[5] == '1' or age >= period)
if not due then
  -- Readers use the server's clock: a step of the clock shows until the next tick.
  call('HSET', CLOCK, 'measured', stamp .. ' ' .. age, 'rotated_at', now - age)
  return {0, rotations, tonumber(drained), stamp, age}
end
drained = tonumber(drained) or math.max(0, rotations - UNDRAINED)
local oldest = (rotations + 1) % 3
if call('EXISTS', BUCKETS[oldest]) == 1 then
  call('RENAME', BUCKETS[oldest], KEYS[OWN])
elseif drained == rotations then
  drained = rotations + 1
end
call('UNLINK', KEYS[OWN + 1])
local pending = tonumber(call('HGET', COUNTERS, 'bucket:' .. oldest) or 0)
counters.add('bucket:' .. oldest, -pending)
counters.add('expiring', pending)
counters.add('rotations', 1)
counters.flush()
passed = (tonumber(passed) or 0) + age
writers_at = math.min(tonumber(writers_at) or passed, passed)
stamp = stamp_of(rotations + 1)
call('HSET', CLOCK, 'rotations', rotations + 1, 'rotated_at', now, 'drained', drained,
  'measured', stamp .. ' 0', 'passed', passed, 'writers_at', writers_at)
if passed - writers_at >= horizon then
  call('UNLINK', WRITERS_BEFORE)
  if call('EXISTS', WRITERS) == 1 then call('RENAME', WRITERS, WRITERS_BEFORE) end
  call('HSET', CLOCK, 'writers_at', passed)
end
return {1, rotations + 1, drained, stamp, 0}
