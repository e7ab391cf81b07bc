-- Keeps the latest failed or expired trees, for people: confirmed outcomes are gone from the spout's stream.
-- @needs shard, outcomes, id_pieces
--
-- An entry has trees of one status and spout. Its id is the number of the shard's trees that failed or
-- expired up to it. So the ids give the number of kept trees, and entries before the last recent.kept trees
-- (set by the script) are dropped. It holds status, at (ms), reasons and why (outcomes.lua; why has a number
-- for each tree, in their order), spout (name) and trees, for each slab:
--   slab, ms from track to end (u32), count: trees of the slab (u16), n (u16), n indexes (u16; n is 0 for
--   all trees), named (u16), bytes (u32), message ids as packed by the spout: of all its trees if n is 0 or
--   large, of the named trees if they are few; named is their number, 0 if they are not kept
local recent = lazy(function(recent)
  recent.pieces, recent.trees, recent.bytes = {}, 0, 0
  -- Most trees and bytes of an entry, because a reader reads all of it.
  local ENTRY_TREES, ENTRY_BYTES = 256, 65536
  -- Most bytes that a call spends on message ids of slabs of many: the read bytes, and 32 bytes for each tree
  -- that is passed over on the way to another. Callers name few enough slabs.
  local RECENT_COST = 4194304
  local KEPT_COST = 8 -- of a byte that is kept: it is copied several times
  local PIECE_COST = 12 -- of a byte of a piece that is read: few of them may be wanted
  local cost = 0

  -- Writes the gathered trees of an entry of a spout's outcomes: recent.of has its status, reasons, spout and
  -- why, and recent.told is the number of its written trees.
  function recent.flush()
    if recent.trees == 0 then return end
    local status, reasons, spout, why = unpack(recent.of)
    local told = recent.told + recent.trees
    why = #why > 0 and {unpack(why, recent.told + 1, told)} or why
    recent.told = told
    counters.raise(COUNTERS, 'recent', recent.trees)
    local number = tonumber(call('HGET', COUNTERS, 'recent'))
    local entry = {'MINID', '=', math.max(0, number - recent.kept), number .. '-0', 'status', status, 'at',
      now, 'reasons', reasons, 'why', outcomes.pack_indexes(why), 'spout', spouts.names[spout], 'trees',
      table.concat(recent.pieces)}
    local added = redis.pcall('XADD', RECENT, unpack(entry))
    if type(added) == 'table' and added.err then -- the count was set back: what is kept begins anew
      call('UNLINK', RECENT)
      call('XADD', RECENT, unpack(entry))
    end
    recent.pieces, recent.trees, recent.bytes = {}, 0, 0
  end

  -- The bytes of the message ids from the tree at `index` to the tree before `wanted`.
  local function bytes_between(packed, index, wanted)
    local sum = 0
    while index + 8 <= wanted do -- twice as fast as one by one
      local at = 2 * index
      local a, a2, b, b2, c, c2, d, d2, e, e2, f, f2, g, g2, h, h2 = byte(packed, at + 1, at + 16)
      sum = sum + a + b + c + d + e + f + g + h + 256 * (a2 + b2 + c2 + d2 + e2 + f2 + g2 + h2)
      index = index + 8
    end
    while index < wanted do
      sum = sum + unpack_from('<I2', packed, 2 * index + 1)
      index = index + 1
    end
    return sum
  end

  -- Of the packed message ids of `count` trees, those at `indexes` (ascending), packed; nil where they can
  -- not be read. Where all have one length, none is passed over.
  local function some_ids(packed, count, indexes)
    if #packed < 2 * count then return nil end
    local lengths, found, at, index = {}, {}, 2 * count + 1, 0
    local same = sub(packed, 1, 2 * count) == rep(sub(packed, 1, 2), count) and unpack_from('<I2', packed)
    for i = 1, #indexes / 2 do
      local wanted = unpack_from('<I2', indexes, 2 * i - 1)
      if same then
        at = 2 * count + 1 + same * wanted
      else
        at = at + bytes_between(packed, index, wanted)
        cost = cost + 32 * (wanted - index)
        index = wanted
      end
      lengths[i] = sub(packed, 2 * wanted + 1, 2 * wanted + 2)
      local length = unpack_from('<I2', lengths[i])
      found[i] = sub(packed, at, at + length - 1)
      if #found[i] ~= length then return nil end
    end
    return table.concat(lengths) .. table.concat(found)
  end

  local function add(slab, packed_ms, count, indexes, named, ids)
    local n = #indexes / 2
    recent.pieces[#recent.pieces + 1] =
      slab .. packed_ms .. pack('<I2I2', count, n) .. indexes .. pack('<I2I4', named, #ids) .. ids
    recent.trees = recent.trees + (n == 0 and count or n)
    recent.bytes = recent.bytes + #indexes + #ids
    cost = cost + KEPT_COST * #ids
    if recent.trees >= ENTRY_TREES or recent.bytes >= ENTRY_BYTES then recent.flush() end
  end

  -- The trees of a slab of many whose message ids are in pieces, by piece.
  local function add_pieces(slab, packed_ms, count, indexes)
    local list = {}
    for index = 0, indexes == '' and count - 1 or -1 do list[index + 1] = index end
    for i = 1, #indexes / 2 do list[i] = unpack_from('<I2', indexes, 2 * i - 1) end
    id_pieces.by_piece(list, function(piece, from, to, inside)
      local ids = cost < RECENT_COST and call('HGET', MESSAGE_IDS, id_pieces.field(slab, piece)) or ''
      cost = cost + PIECE_COST * #ids
      ids = ids ~= '' and some_ids(ids, id_pieces.trees(count, piece), outcomes.pack_indexes(inside)) or ''
      local own = outcomes.pack_indexes({unpack(list, from, to)})
      add(slab, packed_ms, count, own, ids == '' and 0 or #inside, ids)
    end)
  end

  -- The trees of a slab of many; indexes '' for all.
  local function add_slab(slab, packed_ms, count, indexes)
    local ids = cost < RECENT_COST and call('HGET', MESSAGE_IDS, slab) or ''
    if ids == '' and count > id_pieces.TREES and cost < RECENT_COST then
      return add_pieces(slab, packed_ms, count, indexes)
    end
    local named = ids == '' and 0 or count
    cost = cost + #ids
    local few = indexes ~= '' and 4 * #indexes < count
    if few and named > 0 then
      ids = some_ids(ids, count, indexes)
      named, ids = ids and #indexes / 2 or 0, ids or ''
    end
    add(slab, packed_ms, count, indexes, named, ids)
  end

  -- The trees of an entry of a spout's outcomes, before it is packed.
  function recent.keep(status, reasons, spout, entry)
    recent.of, recent.told = {status, reasons, spout, entry.why or {}}, 0
    for facts, list in pairs(entry.whole) do
      local own = {}
      for i = 1, #list do
        if facts.count > 1 then
          add_slab(list[i], facts.packed_ms, facts.count, '')
        else
          local at = (i - 1) % 1000 + 1 -- unpack() takes so many at a time
          if at == 1 then own = call('HMGET', MESSAGE_IDS, unpack(list, i, math.min(i + 999, #list))) end
          add(list[i], facts.packed_ms, 1, '', own[at] and 1 or 0, own[at] or '')
        end
      end
    end
    for i = 1, #entry.part do
      local part = entry.part[i]
      local slab = sub(part, 1, 8)
      local facts = slabs.facts(call('HGET', SLABS, slab))
      add_slab(slab, sub(part, 9, 12), facts.count, sub(part, 15))
    end
    recent.flush()
  end
end)

function outcomes.keep(...) return recent.keep(...) end
