-- Stores a piece of a slab's message ids that are too many bytes for one call
-- (ledger/includes/id_pieces.lua).
-- A later call tracks the slab; the piece waits for the track like any message.
--
-- KEYS  keys of ledger/includes/shard.lua, then
--       1 vector   of the slab
-- ARGV  1 spouts, 2 writer, 3 sequence
--       4 limit    most bytes that wait for their track
--       5 most     most trees of this shard: pending, or with an unconfirmed outcome
--       6 count    of the slab's trees
--       7 piece    0 to 15
--       8 ids      message ids of the piece, packed
--       9 spout    its name; empty of a commit's roots, which a pause does not hold up here
-- Returns K kept, R rejected: over a limit (nothing changed), P rejected: the spout is paused, D tracked
--       before with these ids, C tracked before with others, U refused: its record cannot be read.
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
  local limit, field = tonumber(ARGV[5]), 'paused:' .. string.gsub(ARGV[9], '%.member%-%d%d?%d?$', '')
  local held, paused = unpack(call('HMGET', COUNTERS, 'outstanding', field))
  if paused then return 'P' end
  if (tonumber(held or 0) or limit) + count > limit then return 'R' end
  if not facts and not waiting.open(slab) then return 'R' end
  return waiting.name(slab, piece, packed) and 'K' or 'R'
end

return finish(letter())
