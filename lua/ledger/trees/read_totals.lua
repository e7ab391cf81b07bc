#!lua flags=no-writes
-- Reads the counts of a shard.
--
-- KEYS  keys of ledger/trees/includes/read.lua, then
--       1 counters
--       2 bucket 0, 3 bucket 1, 4 bucket 2
--       ... expired  the undrained sets of rotations, the oldest first
-- ARGV  1 sample     approximate number of slabs whose ages are read to find the oldest pending tree
--       ... name     of a counter
-- Returns {clock, counts, slabs, oldest}: clock as in read_tree.lua; the counters named; numbers of slabs
--       in the nursery, the middle bucket, the oldest bucket and the sets set aside; the track (ms) of the
--       oldest slab with pending trees, in a sample of the set that expires next (-1: none).
-- Bounded: counts, and one SSCAN in each of at most three buckets and the declared sets.
--- @include "store/includes/lazy"
--- @include "ledger/includes/early"
--- @include "ledger/includes/id_pieces"
--- @include "ledger/trees/includes/read"
local COUNTERS = KEYS[READ]
local sets = {}
for k = READ + 4, #KEYS do sets[#sets + 1] = KEYS[k] end
local aside = 0
for k = 1, #sets do aside = aside + call('SCARD', sets[k]) end
local sizes = {0, 0, 0, aside}
for age = 2, 0, -1 do
  local key = KEYS[READ + 1 + (rotations - age) % 3]
  sizes[age + 1] = call('SCARD', key)
  sets[#sets + 1] = key
end
local oldest = -1
for k = 1, #sets do
  local slabs = call('SSCAN', sets[k], '0', 'COUNT', ARGV[1])[2]
  for from = 1, #slabs, 1000 do -- unpack() takes so many at a time
    local headers = call('HMGET', SLABS, unpack(slabs, from, math.min(from + 999, #slabs)))
    for i = 1, #headers do
      if headers[i] and trees.readable(headers[i]) then
        local kind, _, _, _, tracked_at = unpack_from(HEADER, headers[i])
        if kind == TRACKED and (oldest < 0 or tracked_at < oldest) then oldest = tracked_at end
      end
    end
  end
  if oldest >= 0 then break end
end
return {clock, call('HMGET', COUNTERS, unpack(ARGV, 2)), sizes, oldest}
