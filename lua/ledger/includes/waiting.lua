-- Messages that come before their tree is tracked wait, ownerless, for its track or for the third tick.
-- @needs shard, id_pieces, drop_id_pieces, early
--
-- The words that wait for a slab of many are a vector from its first tree on, as an update of a whole slab
-- makes it; and pairs for words beyond its end, so that one early message takes few bytes for any index.
-- Above MOST_PAIRS they become part of the vector, where they take less room by then.
-- Message ids that are sent ahead of their track also wait (stage_ids.lua): the header of a waiting slab has
-- their bytes in place of the spout, and a bit for each piece in place of the count.
-- All bytes that wait in a shard are counted, `waiting.limit` (set by the script) bounds them.
local MOST_PAIRS = 64
local MOST_REASONS = 16 -- of a slab; so they are 16 KiB at most
local FURTHER_REASON = 'failed before its track, for a reason that was not kept: more waited than are kept'
local WAITING_SLAB = 256 -- bytes that a waiting slab takes beside its words: header, bucket, keys
local LONGEST_STAY = 8 * 86400000 -- ms
local waiting = lazy(function(waiting)
  -- Takes so many of the bytes that may wait, or gives them back if they are negative; false without room.
  function waiting.take(bytes)
    waiting.bytes = waiting.bytes or tonumber(call('HGET', COUNTERS, 'waiting_bytes') or 0) or 0
    if bytes > 0 and waiting.bytes + bytes > waiting.limit then return false end
    waiting.bytes = waiting.bytes + bytes
    counters.add('waiting_bytes', bytes)
    return true
  end

  -- Makes a waiting slab in the nursery and returns its header, or nil without room: the caller counts the
  -- message as orphaned, and the tree will expire.
  function waiting.open(slab)
    if not waiting.take(WAITING_SLAB) then return nil end
    counters.add('waiting', 1)
    local header = slabs.header(WAITING, 0, 0, now, ZERO)
    call('HSET', SLABS, slab, header)
    call('SADD', BUCKETS[rotations % 3], slab)
    return header
  end

  -- Has a waiting slab wait until a time at least (ms), however many rotations come: the drain sends it back
  -- to the nursery until then. A tree that is tracked has 8 bytes of its digest in that place.
  function waiting.stay(slab, header, till)
    if till <= waiting.till(header) then return end
    call('HSET', SLABS, slab, sub(header, 1, HEADER_BYTES) .. pack('<I8', till))
  end

  -- Until when it waits at least; 0: no longer than for three rotations, as where the time is none of `stay`.
  function waiting.till(header)
    local till = unpack_from('<I8', header, HEADER_BYTES + 1)
    return till < now + LONGEST_STAY and till or 0
  end

  -- The waiting messages of a slab with this vector ('' for none): words (a vector), failures (index ->
  -- reason), and the bytes counted for all of them. nil if they cannot be read.
  function waiting.read(slab, vector)
    local one = vectors.is_one(slab)
    local pairs_of = not one and call('HGET', EARLY, slab) or ''
    local packed = call('HGET', FAILURES, slab) or ''
    local groups, torn = early.groups(packed)
    local all = #vector % 8 == 0 and early.merge(vector, pairs_of, SLAB_TREES)
    if torn or not all then return nil end
    local bytes = WAITING_SLAB + (one and 0 or #vector) + #pairs_of + #packed
    return {words = all, failures = early.reasons(groups), bytes = bytes}
  end

  -- Counts a slab as one that waits no longer.
  function waiting.leave(facts, bytes)
    counters.add('waiting', -1)
    waiting.take(-bytes - (facts.spout or 0))
  end

  -- Keeps a piece of the message ids of a waiting slab; false without room.
  function waiting.name(slab, piece, packed)
    local old = call('HGET', SLABS, slab)
    local facts = slabs.facts(old)
    local growth = #packed - call('HSTRLEN', MESSAGE_IDS, id_pieces.field(slab, piece))
    if not waiting.take(growth) then return false end
    local pieces = bit.bor(facts.count, bit.lshift(1, piece))
    local header = pack(HEADER, WAITING, facts.spout + growth, pieces, facts.rotation, facts.tracked_at)
    call('HSET', SLABS, slab, header .. sub(old, HEADER_BYTES + 1))
    call('HSET', MESSAGE_IDS, id_pieces.field(slab, piece), packed)
    return true
  end

  -- True if all message ids of a slab of `count` trees came ahead.
  function waiting.named(facts, count)
    return facts.count == 2 ^ math.ceil(count / id_pieces.TREES) - 1
  end

  -- Drops the message ids that came ahead for a slab.
  function waiting.drop_names(slab, facts)
    if facts.count > 0 then drop_id_pieces(slab, SLAB_TREES) end
  end

  -- The words of `found` (index -> word) at the first n of `indexes`, as pairs, without zero words.
  local function pack_pairs(found, indexes, n)
    local order, pieces, p = {}, {}, 0
    for i = 1, n do order[i] = indexes[i] end
    table.sort(order)
    for i = 1, n do
      local word = found[order[i]]
      if word ~= ZERO then
        p = p + 1
        pieces[p] = pack('<I2', order[i]) .. word
      end
    end
    return table.concat(pieces)
  end

  -- Stores pairs in place of `before`, or the vector with them if they are many; false without room.
  local function store_pairs(key, slab, before, packed)
    local vector
    if #packed > MOST_PAIRS * early.PAIR then
      local old = call('GET', key) or ''
      vector, packed = early.merge(old, packed, SLAB_TREES)
      if not vector or not waiting.take(#vector - #old - #before) then return false end
      call('SET', key, vector)
    elseif not waiting.take(#packed - #before) then
      return false
    end
    if packed ~= '' then
      call('HSET', EARLY, slab, packed)
    elseif before ~= '' then
      call('HDEL', EARLY, slab)
    end
    return true
  end

  -- XORs deltas for trees of a slab of many that have no word in its vector, or a zero word. Returns the
  -- number of trees that waited without a word before, and the number without room; nil if the slab cannot be
  -- read.
  -- Bounded: by the trees of a call and MOST_PAIRS.
  function waiting.add(key, slab, indexes, deltas)
    local length, before = call('STRLEN', key), call('HGET', EARLY, slab) or ''
    if length % 8 ~= 0 or #before % early.PAIR ~= 0 then return nil end
    local found, beyond, n, unknown = {}, {}, 0, 0
    for at = 1, #before, early.PAIR do
      n = n + 1
      beyond[n] = unpack_from('<I2', before, at)
      found[beyond[n]] = sub(before, at + 2, at + 9)
    end
    local known = n
    for i = 1, #indexes do
      local index = indexes[i]
      if index * 8 < length then
        unknown = unknown + 1
        call('SETRANGE', key, index * 8, deltas[i])
      elseif found[index] then
        found[index] = vectors.xor(found[index], deltas[i])
      else
        n = n + 1
        beyond[n], found[index] = index, deltas[i]
      end
    end
    if store_pairs(key, slab, before, pack_pairs(found, beyond, n)) then return unknown + n - known, 0 end
    store_pairs(key, slab, before, pack_pairs(found, beyond, known))
    return unknown, n - known
  end

  -- Makes room in a slab's vector for a delta that is XORed into all of it. Returns the vector without the
  -- delta, nil without room, or false if its pairs cannot be read.
  function waiting.room_for(key, slab, value, delta)
    local before = call('HGET', EARLY, slab) or ''
    local vector, packed = early.merge(value, before, #delta / 8)
    if not vector or #value % 8 ~= 0 then return false end
    if not waiting.take(math.max(#vector, #delta) - #value + #packed - #before) then return nil end
    if before ~= packed then
      call('SET', key, vector)
      if packed == '' then call('HDEL', EARLY, slab) else call('HSET', EARLY, slab, packed) end
    end
    return vector
  end

  -- True if one of `groups` has an index (packed).
  local function has(groups, index)
    for _, group in ipairs(groups) do
      local at = find(group.indexes, index, 1, true)
      while at and at % 2 == 0 do at = find(group.indexes, index, at + 1, true) end -- between two indexes
      if at then return true end
    end
    return false
  end

  -- The stand-in for a further reason, which keeps the mark of another attempt (causes.py).
  local function further(reason)
    return FURTHER_REASON .. (string.match(reason, '%z!') and '\0!' or '')
  end

  -- The group of a reason, made if there is none.
  local function group_of(groups, reason)
    for _, group in ipairs(groups) do
      if group.reason == reason then return group end
    end
    local other = further(reason)
    if #groups >= MOST_REASONS and reason ~= other then return group_of(groups, other) end
    local group = {indexes = '', reason = reason}
    groups[#groups + 1] = group
    return group
  end

  -- Fails trees of a slab, by their packed indexes, before its track, each for its reason; the first reason
  -- of a tree stands. Returns the number of trees without room; nil if the waiting messages cannot be read.
  function waiting.fail(slab, indexes, reasons)
    local packed = call('HGET', FAILURES, slab) or ''
    local new, groups, torn = 0, early.groups(packed)
    if torn then return nil end
    local before = #groups
    local added, order = {}, {} -- reason -> packed indexes that no group has
    for i = 1, #indexes do
      if before == 0 or not has(groups, indexes[i]) then
        new = new + 1
        local own = added[reasons[i]]
        if not own then
          own = {}
          added[reasons[i]], order[#order + 1] = own, reasons[i]
        end
        own[#own + 1] = indexes[i]
      end
    end
    if new == 0 then return 0 end
    for _, reason in ipairs(order) do
      local group = group_of(groups, reason)
      group.indexes = group.indexes .. table.concat(added[reason])
    end
    local after = early.pack(groups)
    if not waiting.take(#after - #packed) then return new end
    call('HSET', FAILURES, slab, after)
    return 0
  end

  -- The number of trees from index `first` on with a waiting value, failure, or both.
  function waiting.lost(vector, failures, first)
    local n = 0
    for index = first, #vector / 8 - 1 do -- at most 4,096 words
      if sub(vector, index * 8 + 1, index * 8 + 8) ~= ZERO and not failures[index] then n = n + 1 end
    end
    for index in pairs(failures) do
      if index >= first then n = n + 1 end
    end
    return n
  end
end)
waiting.limit = 0
