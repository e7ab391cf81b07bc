#!lua flags=no-writes
-- Reads the trees in flight of some slabs: pending, or waiting for their track.
--
-- KEYS  keys of ledger/trees/includes/read.lua, then
--       ... vector  of each slab
-- ARGV  1 most      most trees to return
--       2 first     the index to start at in the first slab
-- Returns {clock, trees, slabs, index}: clock as in read_tree.lua; trees as read.lua describes them;
-- the number of slabs read to their end, and the index to go on at in the next one.
-- Bounded by the caller to 1,000 slabs and 1,000 trees; stops by itself after 16,384 words or 1 MiB of
-- message ids (it reads the message ids of at least one slab: at most 4 MiB).
--- @include "store/includes/lazy"
--- @include "ledger/includes/early"
--- @include "ledger/includes/id_pieces"
--- @include "ledger/trees/includes/read"
local most, first = tonumber(ARGV[1]), tonumber(ARGV[2])
local found, words, bytes = {}, 0, 0
for k = 1, #KEYS - READ + 1 do
  if most <= 0 or words >= 16384 or bytes >= 1048576 then return {clock, found, k - 1, first} end
  local key = KEYS[READ + k - 1]
  local slab = trees.slab(key)
  local header = call('HGET', SLABS, slab)
  if header and not trees.readable(header) then header = nil end
  local vector = header and trees.vector(key, slab) or ''
  local tracked = header and unpack_from('<B', header) == TRACKED
  local failures = header and not tracked and trees.failures(slab) or nil
  local length = #vector / 8
  for index in pairs(failures or {}) do length = math.max(length, index + 1) end
  local indexes, n, more = {}, 0, false
  for index = first, length - 1 do
    local word = sub(vector, index * 8 + 1, index * 8 + 8)
    if (word ~= ZERO and word ~= '') or (failures and failures[index]) then
      -- The message ids of four pieces at most.
      if n == most or (n > 0 and index - indexes[1] >= 3 * id_pieces.TREES) then
        more = true
        break
      end
      n = n + 1
      indexes[n] = index
    end
  end
  words = words + length
  if n > 0 then
    local packed = call('HGET', MESSAGE_IDS, slab)
    bytes = bytes + (packed == '' and 1048576 or #(packed or ''))
    found[#found + 1] = trees.describe(k, slab, header, vector, indexes, packed, failures)
    most = most - n
    if more or most == 0 then return {clock, found, k - 1, indexes[n] + 1} end
  end
  first = 0
end
return {clock, found, #KEYS - READ + 1, 0}
