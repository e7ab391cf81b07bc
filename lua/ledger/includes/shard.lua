-- The start of every operation on a shard: its keys, the clock and small helpers.
--
-- KEYS  1 clock            hash    rotations, drained, spouts (below), most_writers where it is set by hand;
--                             measured: stamp and age (ms) of the last rotation (rotate.lua);
--                             rotated_at: when that was by the server's clock (ms), for readers;
--                             passed: ms that were measured until then, altogether;
--                             writers_at: when the writers were rotated, in those
--       2 slabs            hash    slab -> header, from the first message until the last confirmation
--       3 message_ids      hash    slab -> the spout's message ids, as packed by the spout
--       4 failures         hash    slab -> the trees that failed before their track (early.lua)
--       5 confirmed        hash    slab -> number of its confirmed outcomes, if there are any
--       6 counters         hash    exact counts
--       7 latency          hash    histogram bucket -> acked trees
--       8 writers          hash    writer -> "sequence reply" of its last call
--       9 writers_before   hash    the same, before the last rotation of the writers
--      10 scratch          string  operand of BITOP; neither outlives a call
--      11 bucket 0, 12 bucket 1, 13 bucket 2   sets of slabs; the nursery is `rotations % 3`
--      14 operand          string  the other operand of BITOP
--      15 recent           stream  the latest trees that failed or expired (ledger/includes/recent.lua)
--      16 ones             hash    slab of one -> its ack value
--      17 finished         hash    slab -> mask of its finished trees (ledger/includes/finished.lua)
--      18 early           hash    slab -> words that wait for its track (ledger/includes/waiting.lua)
--      19 removed          string  of a topology that was removed lately: 'r' and a random number; 'c' before
--                             that number where it was made anew since. It has a time to live
--      ... outcomes        streams, one for each spout that ARGV[1] names, in its order
--      then the keys that are the operation's own: mostly one ack vector for each slab it names
-- ARGV  1 spouts of the shard, as the caller knows them
--
-- The spouts of a shard are "names,made/number:name/number:name ...": how many names follow, and how many
-- numbers were given so far. A shard gives a spout its number with the first track, and never gives a number
-- again: if the shard loses its latest writes, it loses the slabs with such a number as well. So a slab never
-- belongs to another spout, even if the topology's configuration, which lies elsewhere, is lost. A caller
-- that declares other spouts than the shard has gets the shard's spouts as its reply, and nothing else is
-- done, because its declared keys would be other streams. A shard of a removed topology refuses every call
-- for a day, so no late call makes a key that nobody would find again; a topology of that name that is made
-- anew clears it (lua/ledger/settings/clear_removed.lua).
-- A slab is named by 8 bytes: the anchor of its first tree. The key of its ack vector ends with them. A
-- slab of one, whose name is a negative anchor's, has a field of `ones` instead.
-- A header is kind, number of its spout, count of trees, rotation it entered the nursery at, time tracked
-- (ms), digest.
-- Every stored value is checked when it is read: no operation ends in the middle because of an unreadable
-- one.
-- A word is the 8-byte ack value of one tree; zero is a tree that is not pending.
--- @include "store/includes/lazy"

local call, sub, find, rep, byte = redis.call, string.sub, string.find, string.rep, string.byte
local pack, unpack_from, bxor, floor = struct.pack, struct.unpack, bit.bxor, math.floor

local CLOCK, SLABS, MESSAGE_IDS, FAILURES, CONFIRMED = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local COUNTERS, LATENCY, WRITERS, WRITERS_BEFORE, SCRATCH = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local BUCKETS, OPERAND = {[0] = KEYS[11], KEYS[12], KEYS[13]}, KEYS[14]
local RECENT, ONES, FINISHED, EARLY = KEYS[15], KEYS[16], KEYS[17], KEYS[18]
local REMOVED, OUTCOMES = KEYS[19], 20
local OWN = OUTCOMES + tonumber(string.match(ARGV[1], '^%d+') or 0)

local WAITING, TRACKED = 1, 2
local HEADER, HEADER_BYTES = '<BI4I2I4I8', 19
local SLAB_TREES = 4096
local ZERO = rep('\0', 8)

local instant = call('TIME')
local now = instant[1] * 1000 + floor(instant[2] / 1000)
if sub(call('GET', REMOVED) or '', 1, 1) == 'r' then return redis.error_reply('REMOVED') end
local turned, registry = unpack(call('HMGET', CLOCK, 'rotations', 'spouts'))
registry = registry or ''
local rotations = tonumber(turned or 0)
local declared = registry == ARGV[1]
local readable = declared or registry == '' or find(registry, '^%d+,%d+')
if not rotations or rotations < 0 or rotations % 1 ~= 0 or not readable then
  return redis.error_reply('UNREADABLE the clock of this shard') -- before anything has changed
end
if not declared then return redis.error_reply('SPOUTS ' .. registry) end
if not turned then
  call('HSET', CLOCK, 'rotations', 0, 'rotated_at', now, 'drained', 0, 'writers_at', 0)
end

-- The spouts of the shard: names and keys of streams by number, and numbers by name.
local spouts = lazy(function(spouts)
  spouts.names, spouts.streams, spouts.numbers = {}, {}, {}
  local place = OUTCOMES
  for number, name in string.gmatch(registry, '/(%d+):([^/]+)') do -- bounded: by MOST_SPOUTS of track.lua
    number = tonumber(number)
    spouts.names[number], spouts.streams[number], spouts.numbers[name] = name, KEYS[place], number
    place = place + 1
  end
end)

local counters = {changes = {}}

function counters.add(name, by)
  counters.changes[name] = (counters.changes[name] or 0) + by
end

-- Raises a count by so many, and returns it. An unreadable count begins anew: an error here would leave a
-- call half done.
function counters.raise(hash, name, by)
  local raised = redis.pcall('HINCRBY', hash, name, by)
  if type(raised) ~= 'table' then return raised end
  call('HSET', hash, name, by)
  return by
end

-- Writes the sums of add(): one HINCRBY for each counter, for any number of trees.
function counters.flush()
  for name, by in pairs(counters.changes) do
    if by ~= 0 then counters.raise(COUNTERS, name, by) end
  end
end

local slabs = lazy(function(slabs)
  slabs.known, slabs.leaving, slabs.refused, slabs.refusals = {}, {}, {}, ''

  -- True if a header of these fields belongs to a tracked slab.
  function slabs.is_tracked(kind, spout, count)
    return kind == TRACKED and spouts.names[spout] and count >= 1 and count <= SLAB_TREES
  end

  -- Parses the first HEADER_BYTES of a header; nil if this version writes no such header. Read once for
  -- all slabs of a call that were tracked by one call.
  function slabs.facts_of(fixed)
    local facts = slabs.known[fixed]
    if not facts then
      local kind, spout, count, rotation, tracked_at = unpack_from(HEADER, fixed)
      local tracked = slabs.is_tracked(kind, spout, count)
      if not tracked and kind ~= WAITING then return nil end
      local ms = math.max(0, now - tracked_at)
      facts = {
        kind = kind, tracked = tracked, spout = spout, count = count, rotation = rotation,
        tracked_at = tracked_at, ms = ms, packed_ms = pack('<I4', math.min(ms, 4294967295)),
        ended = 0, acked = 0,
      }
      slabs.known[fixed] = facts
    end
    return facts
  end

  -- Parses a header; nil if it cannot be read.
  function slabs.facts(header)
    if #header ~= HEADER_BYTES + 8 then return nil end
    return slabs.facts_of(sub(header, 1, HEADER_BYTES))
  end

  -- Notes a slab with an unreadable record, left by a newer version or by hand. It is passed over and named
  -- in the reply, and the rest of the call is done: an error in the middle would leave the call half applied,
  -- and its resend would undo that half.
  function slabs.refuse(slab)
    if slabs.refused[slab] then return end
    slabs.refused[slab] = true
    slabs.refusals = slabs.refusals .. string.format((' ' .. rep('%02x', 8)), byte(slab, 1, 8))
  end

  -- The counter that holds the pending trees of a slab that entered the nursery at `rotation`.
  function slabs.bucket_counter(rotation)
    if rotations - rotation < 3 then return 'bucket:' .. rotation % 3 end
    return 'expiring'
  end

  -- Takes slabs out of their buckets: note each, flush once. A slab that is set aside to be drained stays
  -- there: the drain passes over slabs whose header does not name it.
  function slabs.leave_bucket(slab, rotation)
    if rotations - rotation >= 3 then return end
    local bucket = rotation % 3
    local members = slabs.leaving[bucket]
    if not members then
      members = {}
      slabs.leaving[bucket] = members
    end
    members[#members + 1] = slab
  end

  -- Takes up to 1,000 slabs that entered at one rotation out of their bucket, at once.
  function slabs.leave_together(names, rotation)
    if rotations - rotation < 3 and #names > 0 then call('SREM', BUCKETS[rotation % 3], unpack(names)) end
  end

  function slabs.flush()
    for bucket, members in pairs(slabs.leaving) do call('SREM', BUCKETS[bucket], unpack(members)) end
    slabs.leaving = {}
  end
end)

function slabs.name(key)
  return sub(key, -8)
end

function slabs.header(kind, spout, count, tracked_at, digest)
  return pack(HEADER, kind, spout, count, rotations, tracked_at) .. digest
end

-- A digest of 8 bytes of ack values, to compare the values of a slab's track later.
function slabs.digest(values)
  if #values == 8 then return values end
  local hex = redis.sha1hex(values)
  return pack('>I4I4', tonumber(sub(hex, 1, 8), 16), tonumber(sub(hex, 9, 16), 16))
end

local vectors = lazy(function(vectors)
  -- The key of a slab's ack vector, where the caller does not name it.
  function vectors.key(slab)
    return sub(CLOCK, 1, -6) .. 'ack:' .. slab
  end

  -- The ack vector of a slab; nil or false if it has none.
  function vectors.get(key, slab)
    if vectors.is_one(slab) then return call('HGET', ONES, slab) end
    return call('GET', key)
  end

  -- The word of one tree; zero if there is none.
  function vectors.word(key, slab, index)
    local value
    if vectors.is_one(slab) then
      value = index == 0 and call('HGET', ONES, slab)
    else
      value = call('GETRANGE', key, index * 8, index * 8 + 7)
    end
    return value and value ~= '' and value or ZERO
  end

  -- Drops the ack vector of a slab, which has no mask if `count` says that it has a single tree.
  function vectors.drop(key, slab, count)
    if vectors.is_one(slab) then
      call('HDEL', ONES, slab)
    else
      call('DEL', key)
      if count ~= 1 then call('HDEL', FINISHED, slab) end
    end
  end

  -- XORs two vectors of a few words. Many are a matter for BITOP.
  function vectors.xor(one, other)
    local xors = {}
    for at = 1, #one, 8 do
      local a, b = unpack_from('<i4i4', one, at)
      local c, d = unpack_from('<i4i4', other, at)
      xors[#xors + 1] = pack('<i4i4', bxor(a, c), bxor(b, d))
    end
    return table.concat(xors)
  end
end)

function vectors.is_one(slab)
  return byte(slab) >= 128
end

local words = lazy(function(words)
  -- Indexes of the zero words of a vector and their number. A match between two words is passed over.
  function words.zeros(vector)
    local indexes, n, at = {}, 0, 1
    while true do
      local start = find(vector, ZERO, at, true)
      if not start then return indexes, n end
      local over = (start - 1) % 8
      if over == 0 then
        n = n + 1
        indexes[n] = (start - 1) / 8
        at = start + 8
      else
        at = start + 8 - over
      end
    end
  end

  -- The number of nonzero words of a vector.
  function words.count(vector)
    local _, zeros = words.zeros(vector)
    return #vector / 8 - zeros
  end

  -- The indexes of the words of a vector of `length` words that are not among `zeros`.
  function words.others(zeros, length)
    local indexes, n, z = {}, 0, 1
    for index = 0, length - 1 do
      if zeros[z] == index then
        z = z + 1
      else
        n = n + 1
        indexes[n] = index
      end
    end
    return indexes, n
  end

  -- A copy of a vector with the words at `indexes` (ascending) made zero.
  function words.clear(vector, indexes)
    local pieces, n, at = {}, 0, 1
    for i = 1, #indexes do
      local word = indexes[i] * 8 + 1
      pieces[n + 1] = sub(vector, at, word - 1)
      pieces[n + 2] = ZERO
      n = n + 2
      at = word + 8
    end
    pieces[n + 1] = sub(vector, at)
    return table.concat(pieces)
  end
end)
words.cache = {}

-- A vector of zeros.
function words.none(count)
  local vector = words.cache[count]
  if not vector then
    vector = rep(ZERO, count)
    words.cache[count] = vector
  end
  return vector
end
