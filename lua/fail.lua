-- Fails trees: final and at once.
--
-- KEYS  the shard's (includes/shard.lua), then the ack vector of each slab; no slab twice
-- ARGV  1 spouts, 2 writer, 3 sequence
--       4 limit of waiting slabs
--       5 reason   up to 1 KiB
--       6 counts   u16 for each slab: how many of the indexes are its own
--       7 indexes  u16 each
--       8 how many of its trees that failed or expired the shard keeps for people
-- Returns "failed late orphaned", and after that the slabs that were refused, 16 hexadecimal digits each:
--       their record can not be read. A tree not tracked yet waits as failed, and is told so by its track.
-- Tells the spouts: failed.
-- Bounded by the caller: at most 250 trees a call.
--- @include "shard"
--- @include "once"
--- @include "outcomes"
--- @include "recent"
--- @include "waiting"
local limit, reason, counts, indexes = tonumber(ARGV[4]), ARGV[5], ARGV[6], ARGV[7]
recent.kept = tonumber(ARGV[8])
local late, orphaned, total, n = 0, 0, 0, 0
for k = 1, #counts / 2 do
  local key = KEYS[OWN + k - 1]
  local slab = slabs.name(key)
  local one = vectors.is_one(slab)
  local header = call('HGET', SLABS, slab) or waiting.open(slab, limit)
  local facts = header and slabs.facts(header)
  local tracked = facts and facts.tracked
  local failed, f = {}, 0
  local known, added, a = nil, {}, 0
  if facts and not tracked then known, f, added[0] = waiting.failures(slab) end
  if header and not tracked and not known then slabs.refuse(slab) end
  for _ = 1, (unpack_from('<I2', counts, k * 2 - 1)) do
    n = n + 1
    local index = unpack_from('<I2', indexes, n * 2 - 1)
    if not header then
      orphaned = orphaned + 1
    elseif known then
      if not known[index] then
        known[index] = reason
        a = a + 1
        added[a] = pack('<I2I2', index, #reason) .. reason
      end
    elseif tracked then
      local value = index < facts.count and vectors.word(key, slab, index) or ZERO
      if value == ZERO then
        late = late + 1
      else
        if not one then call('SETRANGE', key, index * 8, ZERO) end
        f = f + 1
        failed[f] = index
      end
    end
  end
  if tracked and f > 0 then
    total = total + f
    outcomes.add('failed', reason, slab, facts, failed, f)
    if one or call('BITPOS', key, 1) == -1 then
      vectors.drop(key, slab)
      slabs.leave_bucket(slab, facts.rotation)
    end
  elseif a > 0 then
    call('HSET', FAILURES, slab, table.concat(added, '', 0))
  end
end
counters.add('late', late)
counters.add('orphaned', orphaned)
outcomes.flush()
slabs.flush()
return finish(total .. ' ' .. late .. ' ' .. orphaned .. slabs.refusals)
