-- Stops the clock of slabs whose rows wait for a job, or starts it anew: slabs that entered the nursery some
-- rotations ago go back there. Moved slabs stay, so a repeated call changes nothing.
--
-- KEYS  keys of ledger/includes/shard.lua, then
--       ... vector   of each slab; no slab twice
-- ARGV  1 spouts
--       2 rotations  least number of rotations ago: 2 are slabs that the next rotation would expire
-- Returns {number of processed slabs, number of moved slabs}: it stops by itself after 16,384 trees.
-- A slab without a pending tree stays, and so does one that waits for its track, or cannot be read.
-- Bounded by the caller: at most 500 slabs a call.
--- @include "ledger/includes/shard"
--- @include "ledger/includes/nursery"
local least, names, moved, trees, looked = tonumber(ARGV[2]), {}, 0, 0, 0
for k = OWN, #KEYS do names[#names + 1] = slabs.name(KEYS[k]) end
local headers = #names > 0 and call('HMGET', SLABS, unpack(names)) or {}
for k = 1, #names do
  if trees >= 16384 then break end
  local slab, key, header = names[k], KEYS[OWN + k - 1], headers[k]
  local facts = header and slabs.facts(header)
  looked = k
  if facts and facts.tracked and rotations - facts.rotation >= least then
    local value = vectors.get(key, slab)
    trees = trees + facts.count
    if value and #value == facts.count * 8 then
      nursery.enter(key, slab, header, facts)
      moved = moved + 1
    end
  end
end
slabs.flush()
counters.flush()
return {looked, moved}
