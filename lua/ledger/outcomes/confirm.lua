-- Confirms outcomes: the spout has them, so they are no longer kept. A slab whose outcomes are all confirmed
-- is forgotten, with its message ids.
--
-- KEYS  keys of ledger/includes/shard.lua, then
--       1 outcomes      stream of the spout
-- ARGV  1 spouts
--       2 spout         name
--       ... id, digest  of each entry as the caller read it; "!" stands before the digest of an entry that
--                       the caller could not read
-- Returns {confirmed trees, processed entries, {unreadable records}}: the caller asks again for the rest. An
--       entry confirmed before is passed over, and so is an entry with another digest: a store that lost its
--       latest writes, and whose clock is behind, gives an id again. An unreadable entry is dropped and
--       counted (ledger/includes/unreadable.lua), with its trees if it names them.
-- Bounded: takes no further entry after 1,000 slabs, or 16 MiB of message ids, and no entry has more than
--       one call can touch.
--- @chained true
--- @include "ledger/includes/shard"
--- @include "ledger/includes/id_pieces"
--- @include "ledger/includes/drop_id_pieces"
--- @include "ledger/includes/unreadable"
local stream = KEYS[OWN]
local trees, work, seen = 0, 0, 0

local PIECE_WORK = 16 -- slabs that a piece of message ids counts for

local function forget(done)
  for first = 1, #done, 1000 do
    local last = math.min(first + 999, #done)
    call('HDEL', SLABS, unpack(done, first, last))
    call('HDEL', MESSAGE_IDS, unpack(done, first, last))
    call('HDEL', FINISHED, unpack(done, first, last)) -- a slab may be tracked again after that
  end
end

-- Drops the message ids of a slab that are in pieces; other ids go with `forget`.
local function drop_pieces(slab, count)
  work = work + PIECE_WORK * drop_id_pieces(slab, count)
end

-- True if pieces follow each other to the end: each is `head` bytes, at whose end n (u16) says that n items
-- of `size` bytes follow.
local function fits(packed, head, size)
  local at = 1
  while at <= #packed do
    if at + head - 1 > #packed then return false end
    at = at + head + size * unpack_from('<I2', packed, at + head - 2)
  end
  return at == #packed + 1
end

-- True if there are reasons, and `why` is empty or names one of them for each tree of `part`. At most one
-- step for each reason and each tree that one call can touch.
local function has_reasons(entry)
  local reasons, why, part = entry.reasons, entry.why, entry.part
  if not reasons or not why or reasons == '' or not fits(reasons, 2, 1) then return false end
  if why == '' then return true end
  local known, named, at = 0, 0, 1
  while at <= #reasons do
    known, at = known + 1, at + 2 + unpack_from('<I2', reasons, at)
  end
  at = 1
  while at <= #part do
    local n = unpack_from('<I2', part, at + 12)
    named, at = named + n, at + 14 + 2 * n
  end
  if #why ~= 2 * named then return false end
  for n = 1, #why, 2 do
    if unpack_from('<I2', why, n) >= known then return false end
  end
  return true
end

-- The content of an entry: whole, part, and its digest; nil if it cannot be read.
local function parse(fields)
  local entry = {}
  for f = 1, #fields, 2 do entry[fields[f]] = fields[f + 1] end
  local there = entry.whole and entry.part and fits(entry.whole, 6, 8) and fits(entry.part, 14, 2)
  if there and has_reasons(entry) then
    local said = (entry.at or '') .. (entry.status or '') .. entry.whole .. entry.part
    return entry.whole, entry.part, sub(redis.sha1hex(said), 1, 16)
  end
end

-- The number of trees of a slab; nil if no record gives it any more.
local function count_of(slab, header)
  local facts = slabs.facts(header)
  return facts and facts.count or unreadable.count(slab)
end

-- Confirms all trees of slabs; the slabs go, even if their header cannot be read.
local function confirm_whole(whole)
  local headers = call('HMGET', SLABS, unpack(whole))
  for k = 1, #whole do
    local facts = headers[k] and slabs.facts(headers[k])
    if facts then
      trees = trees + facts.count
      drop_pieces(whole[k], facts.count)
    elseif headers[k] then
      trees = trees + (unreadable.count(whole[k]) or 0)
      unreadable.add(whole[k])
      drop_pieces(whole[k], SLAB_TREES)
    end
  end
end

-- Confirms n trees of a slab; returns true if these were its last.
local function confirm_part(slab, n)
  local header = call('HGET', SLABS, slab)
  if not header then return true end
  trees = trees + n
  if counters.raise(CONFIRMED, slab, n) < (count_of(slab, header) or SLAB_TREES) then return false end
  local facts = slabs.facts(header)
  if not facts then unreadable.add(slab) end
  drop_pieces(slab, facts and facts.count or SLAB_TREES)
  return true
end

local function confirm(whole, part)
  local done, at = {}, 1
  while at <= #whole do
    local n = unpack_from('<I2', whole, at + 4)
    for first = at + 6, at + 5 + 8 * n, 8000 do
      local some, m = {}, 0
      for slab_at = first, math.min(first + 7992, at + 8 * n - 2), 8 do
        m = m + 1
        some[m] = sub(whole, slab_at, slab_at + 7)
        done[#done + 1] = some[m]
      end
      confirm_whole(some)
    end
    work = work + n
    at = at + 6 + 8 * n
  end
  at = 1
  while at <= #part do
    local slab, n = sub(part, at, at + 7), unpack_from('<I2', part, at + 12)
    if confirm_part(slab, n) then
      call('HDEL', CONFIRMED, slab)
      done[#done + 1] = slab
    end
    work = work + 1
    at = at + 14 + 2 * n
  end
  forget(done)
end

for i = 3, #ARGV, 2 do
  if work >= 1000 then break end
  seen, work = seen + 1, work + 1
  local found = call('XRANGE', stream, ARGV[i], ARGV[i])[1]
  if found then
    local whole, part, digest = parse(found[2])
    local refused = not whole or ARGV[i + 1] == '!' .. digest
    if refused then unreadable.add(ARGV[i]) end
    if whole and (refused or ARGV[i + 1] == digest) then confirm(whole, part) end
    if refused or ARGV[i + 1] == digest then call('XDEL', stream, ARGV[i]) end
  end
end
counters.add('outstanding', -trees)
local number = spouts.numbers[ARGV[2]]
if number then counters.add('outstanding:' .. number, -trees) end
counters.flush()
return {trees, seen, unreadable.names}
