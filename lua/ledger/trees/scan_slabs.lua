#!lua flags=no-writes
-- Names some slabs of a shard's buckets, the oldest generation first. A generation is the slabs that
-- entered the nursery at one rotation; they lie in one bucket until the third rotation since sets it aside.
--
-- KEYS  keys of ledger/trees/includes/read.lua, then
--       1 bucket 0, 2 bucket 1, 3 bucket 2
--       ... expired  the sets of the generations from `first` on, by rotations first + 2, first + 3
-- ARGV  1 first      the generation to start at
--       2 cursor     cursor in it (SSCAN), "0" to begin
--       3 count      approximate number of slabs to name (SSCAN's COUNT)
--       4 youngest, 5 oldest  the generations wanted, as rotations made since: 0 is the nursery, 3 and more
--                    are set aside
-- Returns {clock, generation, cursor, {slab, header, slab, header ...}}: clock as in read_tree.lua;
--       generation and cursor are the next position; generation -1 is the end.
-- Bounded: one SSCAN for each generation passed over, and one for a generation with slabs.
--- @include "store/includes/lazy"
--- @include "ledger/includes/early"
--- @include "ledger/includes/id_pieces"
--- @include "ledger/trees/includes/read"
local first, cursor, count = tonumber(ARGV[1]), ARGV[2], ARGV[3]
local youngest, oldest = tonumber(ARGV[4]), tonumber(ARGV[5])
for n = 0, #KEYS - READ - 3 do
  local generation = first + n
  local age = rotations - generation
  if age < youngest then return {clock, -1, '0', {}} end
  if age <= oldest then
    local key = age < 3 and KEYS[READ + generation % 3] or KEYS[READ + 3 + n]
    local slabs
    cursor, slabs = unpack(call('SSCAN', key, cursor, 'COUNT', count))
    if #slabs > 0 or cursor ~= '0' then
      local named, m = {}, 0
      for from = 1, #slabs, 1000 do -- unpack() takes so many at a time
        local to = math.min(from + 999, #slabs)
        local headers = call('HMGET', SLABS, unpack(slabs, from, to))
        for i = from, to do
          local header = headers[i - from + 1]
          -- A slab that went back to the nursery stays in a set that is set aside until the drain.
          if header and trees.readable(header) and select(4, unpack_from(HEADER, header)) == generation then
            named[m + 1], named[m + 2] = slabs[i], sub(header, 1, HEADER_BYTES)
            m = m + 2
          end
        end
      end
      if cursor == '0' then generation = generation + 1 end
      return {clock, generation, cursor, named}
    end
  end
  cursor = '0'
end
return {clock, first + #KEYS - READ - 2, '0', {}}
