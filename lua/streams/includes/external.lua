-- External segments: their rows are elsewhere, and consumers say which rows they have worked on, a bit each.
-- @needs shard, waiting, failing, applied
--
-- The hash of such a segment's staged vectors (lua/streams/staging/stage.lua) has besides
--   of         the commit that has staged them, which alone may emit them: another one may have other rows;
--              missing where they are emitted
--   rows       "rows left ttl positions": how many of its rows have an anchor in this shard; how many of them
--              were not worked on when it was last looked at, all before it is emitted; for how many seconds
--              what is not emitted waits: staging_ttl; and how many rows it has in all shards
--   alone      such seconds, of tuples that were taken over (acker/streams/staging/external/emitting.py):
--              then there are no rows
--   mask       which rows have an anchor here; missing where all have
--   bits       rows that were worked on; missing for none
--   full       1: all were, and their fails were taken: the vectors may be acked, chunk by chunk
--   fails      fails of rows, while it is not emitted or they are being taken: (position as u16, n as u8, n
--              trees, length as u16, reason)*; a tree is its slab and index (u16)
--   oldest     "rotation until": the oldest that emits wait from of commits whose bits these are
--              (applied.lua)
--   void       1: such emits may have been dropped: its bits do not count, and its trees are to be failed
--   early      1: bits have made the hash, and nothing is staged yet
--   charged    "generation bytes": what its bits and fails take of what may wait (external.has_room)
-- An acked segment leaves its state for these seconds and a margin: a row that comes again is known by it. A
-- segment that ended otherwise leaves the same, and `void` (streams/staging/external/leave_tombstone.lua).
-- The counter `open:<slot>` of a shard is the sum of the rows left of a subscription's emitted segments,
-- without full and void ones; missing for zero. So nobody counts the bits of all segments.
local external = lazy(function(external)
  external.MARGIN = 600
  external.HOLD = 30 * 86400
  external.MOST_FAILS = 250 -- trees that a call fails
  external.taken, external.opened = 0, {}
  local numbers = {}
  local AROUND = 300 -- bytes of a hash that bits have made, beside them

  -- The four numbers of a field `rows`; none if it is missing or cannot be read.
  function external.numbers(text)
    local four = numbers[text]
    if not four then
      local rows, left, ttl, positions = string.match(text or '', '^(%d+) (%d+) (%d+) (%d+)$')
      four = {tonumber(rows), tonumber(left), tonumber(ttl), tonumber(positions)}
      if text then numbers[text] = four end
    end
    return unpack(four, 1, 4)
  end

  -- True if emits that wait since `wait` ("rotation until") may have been dropped.
  function external.is_old(wait)
    local rotation, till = string.match(wait or '', '^(%-?%d+) (%-?%d+)$')
    if not rotation then return (wait or '') ~= '' end
    return rotations - tonumber(rotation) >= 3 and now >= tonumber(till)
  end

  -- The older of two waits: nothing is younger than it in either.
  function external.older(one, other)
    local r1, u1 = string.match(one or '', '^(%-?%d+) (%-?%d+)$')
    if not r1 then return other end
    local r2, u2 = string.match(other, '^(%-?%d+) (%-?%d+)$')
    return string.format('%.0f %.0f', math.min(r1, r2), math.min(u1, u2))
  end

  -- ORs two bitmaps.
  function external.either(one, other)
    if not one or one == '' then return other end
    if other == '' then return one end
    call('MSET', SCRATCH, one, OPERAND, other)
    call('BITOP', 'OR', SCRATCH, SCRATCH, OPERAND)
    external.scratch = true
    return call('GET', SCRATCH)
  end

  -- A bitmap without what is no row of the segment here.
  local function cut(bits, positions, mask)
    local bytes, rest = math.ceil(positions / 8), positions % 8
    if #bits > bytes then bits = sub(bits, 1, bytes) end
    if #bits == bytes and rest > 0 then
      bits = sub(bits, 1, bytes - 1) .. string.char(bit.band(byte(bits, bytes), 256 - 2 ^ (8 - rest)))
    end
    if not mask then return bits end
    call('MSET', SCRATCH, bits, OPERAND, mask)
    call('BITOP', 'AND', SCRATCH, SCRATCH, OPERAND)
    external.scratch = true
    return call('GET', SCRATCH)
  end

  -- The fails of what is a row of the segment here. A sender may have stamped a row, and left it out.
  local function fails_here(fails, positions, mask)
    local kept = {}
    for _, row in ipairs(fails) do
      if row.position < positions and (not mask or external.has(mask, row.position)) then
        kept[#kept + 1] = row
      end
    end
    return kept
  end

  -- The bitmap of so many rows, from the first on. A call has mostly segments of one length.
  local runs = {}
  function external.first(rows)
    if not runs[rows] then
      local rest = rows % 8
      runs[rows] = rep('\255', floor(rows / 8)) .. (rest > 0 and string.char(256 - 2 ^ (8 - rest)) or '')
    end
    return runs[rows]
  end

  -- The number of rows without a bit. Most segments are worked on as a whole: equal bitmaps need no count.
  local function count_lacking(bits, rows, mask)
    if not mask and bits == external.first(rows) then return 0 end
    call('SET', SCRATCH, bits)
    external.scratch = true
    return rows - call('BITCOUNT', SCRATCH)
  end

  -- True if a bitmap has a position.
  function external.has(bits, position)
    local at = floor(position / 8) + 1
    return at <= #bits and bit.band(byte(bits, at), 2 ^ (7 - position % 8)) > 0
  end

  -- Fails of rows, as a list of {position, trees, reason}: (slab, index)* packed. At most one for each row.
  function external.fails(packed)
    local found, at = {}, 1
    while at + 2 <= #packed do
      local position, n = unpack_from('<I2B', packed, at)
      local from = at + 3 + 10 * n
      if from + 1 > #packed then break end
      local length = unpack_from('<I2', packed, from)
      found[#found + 1] = {position = position, trees = sub(packed, at + 3, from - 1),
        reason = sub(packed, from + 2, from + 1 + length), from = at, to = from + 1 + length}
      at = from + 2 + length
    end
    return found
  end

  -- Fails the trees of rows, of as many as a call may; returns how many of the rows were taken.
  function external.fail(rows)
    local by_slab, order, n = {}, {}, 0
    for r = 1, #rows do
      local trees = #rows[r].trees / 10
      if external.taken > 0 and external.taken + trees > external.MOST_FAILS then break end
      external.taken, n = external.taken + trees, r
      for at = 1, #rows[r].trees, 10 do
        local slab = sub(rows[r].trees, at, at + 7)
        local own = by_slab[slab]
        if not own then
          own = {trees = {}, reasons = {}, seen = {}}
          by_slab[slab], order[#order + 1] = own, slab
        end
        local index = sub(rows[r].trees, at + 8, at + 9)
        if not own.seen[index] then
          own.seen[index] = true
          own.trees[#own.trees + 1], own.reasons[#own.reasons + 1] = index, rows[r].reason
        end
      end
    end
    for _, slab in ipairs(order) do
      failing.slab(vectors.key(slab), slab, by_slab[slab].trees, by_slab[slab].reasons)
    end
    return n
  end

  -- Bytes are counted by generations of `ttl`, and two of them are looked at: what nobody touches is gone by
  -- then. True if there is room for so many more.
  function external.has_room(waits, bytes, ttl, most)
    local generation = floor(now / 1000 / ttl)
    local this, before = unpack(call('HMGET', waits, generation, generation - 1))
    return (tonumber(this or nil) or 0) + (tonumber(before or nil) or 0) + bytes <= most
  end

  -- Counts what waits of a hash in its shard: `bytes`, in place of what was counted of it before.
  function external.charge(key, waits, bytes, ttl)
    local generation = floor(now / 1000 / ttl)
    local of, had = string.match(call('HGET', key, 'charged') or '', '^(%d+) (%d+)$')
    if of and call('HEXISTS', waits, of) == 1 then call('HINCRBY', waits, of, 0 - tonumber(had)) end
    if bytes == 0 then
      call('HDEL', key, 'charged')
      return
    end
    if call('HEXISTS', waits, generation) == 0 then
      for _, old in ipairs(call('HKEYS', waits)) do -- at most three
        if tonumber(old) < generation - 1 then call('HDEL', waits, old) end
      end
    end
    call('HINCRBY', waits, generation, bytes)
    call('EXPIRE', waits, 3 * ttl)
    call('HSET', key, 'charged', generation .. ' ' .. bytes)
  end

  -- Bytes that a hash takes while bits wait in it.
  function external.size(bits, fails)
    return AROUND + #(bits or '') + #(fails or '')
  end

  -- Counts rows of an emitted segment that are to be worked on: so many more, or fewer.
  local function open(key, by)
    local slot = string.match(key, '^.*:(.*)$')
    external.opened[slot] = (external.opened[slot] or 0) + by
  end

  -- The fields of a segment that `look` needs, and after them its state and what was charged.
  function external.facts(key)
    return call('HMGET', key, 'full', 'void', 'fails', 'bits', 'rows', 'mask', 'oldest', 'state', 'charged')
  end

  -- Looks at an emitted segment: takes fails that wait, as many as a call may, and then counts its bits.
  -- new: all its bits, with bits that are not stored yet; nil where there are none. facts: its fields, if
  -- the caller has read them (external.facts).
  -- Returns f where it is full, m where further fails wait, v where it is void, else o, also if its numbers
  -- cannot be read.
  function external.look(key, new, facts)
    local full, void, fails, stored, of_rows, mask, oldest = unpack(facts or external.facts(key))
    if full then return 'f' end
    if void then return 'v' end
    local rows, left, ttl, positions = external.numbers(of_rows)
    if not rows or not mask and rows ~= positions then return 'o' end -- a part of the hash is missing
    local bits = new or stored
    if fails then
      local list = fails_here(external.fails(fails), positions, mask)
      local before = failing.orphaned
      local n = external.fail(list)
      if failing.orphaned > before then -- no room for a fail that waits for its track: nothing may be acked
        open(key, 0 - left)
        call('HSET', key, 'void', 1)
        call('HDEL', key, 'bits', 'fails', 'oldest')
        return 'v'
      end
      if n < #list then
        call('HSET', key, 'fails', sub(fails, list[n + 1].from))
        if new then call('HSET', key, 'bits', new) end
        return 'm'
      end
      call('HDEL', key, 'fails')
    end
    if not bits then return 'o' end
    local counted = cut(bits, positions, mask)
    local lacking = count_lacking(counted, rows, mask)
    open(key, lacking - left)
    if lacking > 0 then
      if counted ~= stored or lacking ~= left then
        call('HSET', key, 'bits', counted, 'rows', table.concat({rows, lacking, ttl, positions}, ' '))
      end
      return 'o'
    end
    call('HSET', key, 'full', 1)
    if stored or mask or oldest then call('HDEL', key, 'bits', 'mask', 'oldest') end
    return 'f'
  end

  -- Ends the emit of a segment: all its chunks are in their trees. Returns what `look` does.
  function external.emitted(key, waits)
    local facts = external.facts(key)
    local oldest, charged = facts[7], facts[9]
    local rows, _, ttl = external.numbers(facts[5])
    call('EXPIRE', key, external.HOLD)
    call('HDEL', key, 'of')
    if charged then external.charge(key, waits, 0, ttl) end
    if oldest and external.is_old(oldest) then
      call('HSET', key, 'void', 1)
      call('HDEL', key, 'bits', 'fails', 'oldest')
      return 'v'
    end
    open(key, rows)
    return external.look(key, nil, facts)
  end

  -- Leaves of an acked segment what tells of it when a row of it comes again. ttl: its own, in seconds.
  function external.bury(key, state, ttl)
    call('DEL', key)
    call('HSET', key, 'state', state)
    call('EXPIRE', key, ttl + external.MARGIN)
  end

  function external.flush()
    if external.scratch then call('DEL', SCRATCH, OPERAND) end
    for slot, by in pairs(external.opened) do
      local name = 'open:' .. slot
      if by ~= 0 and counters.raise(COUNTERS, name, by) <= 0 then call('HDEL', COUNTERS, name) end
    end
    counters.add('late', failing.late)
    counters.add('orphaned', failing.orphaned)
  end
end)
