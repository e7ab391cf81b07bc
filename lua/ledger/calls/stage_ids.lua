-- Stores message ids of a slab that a later call tracks, where they are too many bytes for one call: a piece
-- of them (ledger/includes/id_pieces.lua). It waits for the track as any message does.
--
-- KEYS  those of ledger/includes/shard.lua, then
--       1 vector   of the slab
-- ARGV  1 spouts, 2 writer, 3 sequence
--       4 limit    of the bytes that wait for their track
--       5 most     how many trees this shard may hold: pending, or with an outcome not yet confirmed
--       6 count    of the slab's trees
--       7 piece    0 to 15
--       8 ids      message ids of the piece, packed
-- Returns K kept, R rejected: over a limit (nothing changed), D tracked before with these ids, C tracked
--       before with others, U refused: what is held of it cannot be read.
-- Bounded by the caller: a piece is of 256 trees at most.
--- @include "ledger/includes/shard"
--- @include "ledger/includes/once"
--- @include "ledger/includes/id_pieces"
--- @include "ledger/includes/drop_id_pieces"
--- @include "ledger/includes/early"
--- @include "ledger/includes/waiting"
waiting.limit = tonumber(ARGV[4])
local key, count, piece, packed = KEYS[OWN], tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8]
local slab = slabs.name(key)
local header = call('HGET', SLABS, slab)
local facts = header and slabs.facts(header)

local function letter()
  if header and not facts then return 'U' end
  if facts and facts.tracked then
    local same = facts.count == count and call('HGET', MESSAGE_IDS, id_pieces.field(slab, piece)) == packed
    return same and 'D' or 'C'
  end
  local limit = tonumber(ARGV[5])
  if (tonumber(call('HGET', COUNTERS, 'held') or 0) or limit) + count > limit then return 'R' end
  if not facts and not waiting.open(slab) then return 'R' end
  return waiting.name(slab, piece, packed) and 'K' or 'R'
end

return finish(letter())
