-- The start of every read-only operation on a shard: its clock, and the description of a slab's trees.
--
-- @needs early, id_pieces
--
-- KEYS  1 clock, 2 slabs, 3 message_ids, 4 failures, 5 ones, 6 early (shard.lua says what each
-- holds) then the keys that are the operation's own
--
-- Trees are described slab by slab as
--   {k, header, indexes (u16 each), words (8 bytes each), {message id ...}, {reason or false ...}}
-- with k the number of the slab in the call, from 1. Only a tree that failed before its track has a reason.
local call, sub = redis.call, string.sub
local pack, unpack_from, floor = struct.pack, struct.unpack, math.floor

local CLOCK, SLABS, MESSAGE_IDS, FAILURES, ONES, EARLY = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local READ = 7
local WAITING, TRACKED = 1, 2
local HEADER, HEADER_BYTES = '<BI4I2I4I8', 19
local ZERO = string.rep('\0', 8)

local instant = call('TIME')
local now = instant[1] * 1000 + floor(instant[2] / 1000)
local rotations, rotated_at, drained, spouts =
  unpack(call('HMGET', CLOCK, 'rotations', 'rotated_at', 'drained', 'spouts'))
rotations = tonumber(rotations or 0)
local clock = {now, rotations, tonumber(rotated_at or -1), tonumber(drained or 0), spouts or ''}

local trees = {}

-- True if this version writes such a header. Other headers are passed over, until a tick drops them.
function trees.readable(header)
  if #header ~= HEADER_BYTES + 8 then return false end
  local kind, _, count = unpack_from(HEADER, header)
  return kind == WAITING or (kind == TRACKED and count >= 1 and count <= 4096)
end

function trees.slab(key)
  return sub(key, -8)
end

-- The ack vector of a slab, with the words that wait beyond its end if they can be read; empty without one.
function trees.vector(key, slab)
  if string.byte(slab) >= 128 then return call('HGET', ONES, slab) or '' end
  local vector = call('GET', key) or ''
  return early.merge(vector, call('HGET', EARLY, slab) or '', 4096) or vector
end

-- The failures that wait for a slab's track, up to an unreadable one: index -> reason.
function trees.failures(slab)
  return early.reasons((early.groups(call('HGET', FAILURES, slab) or '')))
end

-- The message ids of a slab of `count` trees at `indexes` (ascending), from their packed form; none if
-- there are fewer. Costs one step for each tree up to the last of these: at most 4,096.
function trees.message_ids(packed, count, indexes)
  if #packed < 2 * count or (#indexes > 0 and indexes[#indexes] >= count) then return {} end
  local found, n, at, index = {}, 0, 2 * count + 1, 0
  for i = 1, #indexes do
    while index < indexes[i] do
      at = at + unpack_from('<I2', packed, 2 * index + 1)
      index = index + 1
    end
    n = n + 1
    found[n] = sub(packed, at, at + unpack_from('<I2', packed, 2 * index + 1) - 1)
  end
  return found
end

-- The same for a slab with message ids in pieces (ledger/includes/id_pieces.lua): `packed` is '' then.
function trees.named(slab, packed, count, indexes)
  if packed ~= '' then return trees.message_ids(packed, count, indexes) end
  local found, whole = {}, true
  id_pieces.by_piece(indexes, function(piece, _, _, inside)
    local own = call('HGET', MESSAGE_IDS, id_pieces.field(slab, piece)) or ''
    local named = trees.message_ids(own, id_pieces.trees(count, piece), inside)
    whole = whole and #named == #inside
    for i = 1, #named do found[#found + 1] = named[i] end
  end)
  return whole and found or {}
end

-- Describes the trees of a slab at `indexes` (ascending). `failures` is for slabs that wait.
function trees.describe(k, slab, header, vector, indexes, packed, failures)
  local _, _, count = unpack_from(HEADER, header)
  local positions, values, reasons = {}, {}, {}
  for i = 1, #indexes do
    local index = indexes[i]
    local word = sub(vector, index * 8 + 1, index * 8 + 8)
    positions[i] = pack('<I2', index)
    values[i] = word == '' and ZERO or word
    reasons[i] = failures and failures[index] or false
  end
  packed = packed or call('HGET', MESSAGE_IDS, slab)
  local ids = packed and trees.named(slab, packed, count, indexes) or {}
  return {k, sub(header, 1, HEADER_BYTES), table.concat(positions), table.concat(values), ids, reasons}
end
