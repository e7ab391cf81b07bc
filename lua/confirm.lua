-- Confirms outcomes: the spout has them, they need not be kept. A slab all of whose outcomes are confirmed
-- is forgotten, with its message ids.
--
-- KEYS  the shard's (includes/shard.lua), then the outcomes stream of the spout
-- ARGV  1 spouts
--       2 ... ids of stream entries
-- Returns {trees that were confirmed, entries that were looked at}: the caller asks again for the rest. An
--       entry confirmed before is passed over.
-- Bounded: takes no further entry after 1,000 slabs, and no entry has more than one call can touch.
--- @include "shard"
local stream = KEYS[OWN]
local trees, work, seen = 0, 0, 0

local function forget(names)
  for first = 1, #names, 1000 do
    local last = math.min(first + 999, #names)
    call('HDEL', SLABS, unpack(names, first, last))
    call('HDEL', MESSAGE_IDS, unpack(names, first, last))
  end
end

for i = 2, #ARGV do
  if work >= 1000 then break end
  seen, work = seen + 1, work + 1
  local found = call('XRANGE', stream, ARGV[i], ARGV[i])[1]
  if found then
    local entry = {}
    for f = 1, #found[2], 2 do entry[found[2][f]] = found[2][f + 1] end
    local done = {}
    local at = 1
    while at <= #entry.whole do
      local n = unpack_from('<I2', entry.whole, at + 4)
      for first = at + 6, at + 5 + 8 * n, 8000 do
        local names, m = {}, 0
        for slab_at = first, math.min(first + 7992, at + 8 * n - 2), 8 do
          m = m + 1
          names[m] = sub(entry.whole, slab_at, slab_at + 7)
          done[#done + 1] = names[m]
        end
        local headers = call('HMGET', SLABS, unpack(names))
        for k = 1, m do
          if headers[k] then trees = trees + slabs.facts(headers[k]).count end
        end
      end
      work = work + n
      at = at + 6 + 8 * n
    end
    at = 1
    while at <= #entry.part do
      local slab, n = sub(entry.part, at, at + 7), unpack_from('<I2', entry.part, at + 12)
      local header = call('HGET', SLABS, slab)
      if header then trees = trees + n end
      if not header or call('HINCRBY', CONFIRMED, slab, n) >= slabs.facts(header).count then
        call('HDEL', CONFIRMED, slab)
        done[#done + 1] = slab
      end
      work = work + 1
      at = at + 14 + 2 * n
    end
    forget(done)
    call('XDEL', stream, ARGV[i])
  end
end
counters.add('held', -trees)
counters.flush()
return {trees, seen}
