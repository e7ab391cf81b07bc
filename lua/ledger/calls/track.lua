-- Tracks slabs of new trees for a spout.
--
-- KEYS  keys of ledger/includes/shard.lua, then
--       1 outcomes   stream of the spout
--       ... vector   of each slab; no slab twice
--       last staged  of a commit: the staged vectors of its roots (lua/streams/staging/stage.lua)
-- ARGV  1 spouts, 2 writer, 3 sequence
--       4 spout      name of the spout that owns the trees
--       5 limit      most trees of this shard: pending, or with an unconfirmed outcome
--       6 kept       number of failed or expired trees that the shard keeps for people
--       7 how        "once" of a commit: staged vectors note the tracked slabs, and go at the end of their
--                    roots. So a driver that was stopped meanwhile, for any time, tracks no slab again.
--                    "again" of slabs that the ledger has lost: they are noted, and tracked; or ""
--       8 emitted    how many tuples the caller has emitted into trees since its last report: XORs do not
--                    show it
--       ... values, ids  of each slab: its ack values (one word for each tree) and its message ids, or ''
--                    if these were sent ahead in pieces (stage_ids.lua). If a piece is missing, the slab is
--                    rejected
-- Returns one letter for each slab: A tracked, D tracked before with the same content, C tracked before
--       with other content (nothing changed), R rejected: over the limit (nothing changed), W rejected:
--       message ids to be sent ahead are missing (nothing changed), P rejected: its spout is paused, and
--       the slab is no root's (nothing changed), U refused: its record cannot be read (nothing changed).
--       After a P follow, once, a space and the record of the pause (acker/ledger/settings/pauses.py), except
--       to a resend, and within apply_calls.lua.
-- An error if the shard has too many spouts already: nothing has changed then.
-- Tells the spout: acked for trees whose ack value is zero by now, failed for trees that failed before.
-- Bounded by the caller: at most 400 slabs and 16,384 trees a call.
--- @chained string.find(reply, '^[AD]+$')
--- @include "ledger/includes/shard"
--- @include "ledger/includes/once"
--- @include "ledger/includes/id_pieces"
--- @include "ledger/includes/drop_id_pieces"
--- @include "ledger/includes/outcomes"
--- @include "ledger/includes/recent"
--- @include "ledger/includes/early"
--- @include "ledger/includes/waiting"
local name, limit = ARGV[4], tonumber(ARGV[5])
-- Twice the spouts of a topology: spouts of a lost configuration may still have trees.
local MOST_SPOUTS = 128
recent.kept = tonumber(ARGV[6])
local n = (#ARGV - 8) / 2
local staged, once = KEYS[OWN + n + 1], ARGV[7] == 'once'
local ended = staged and call('EXISTS', staged) == 0
-- The member of a spout is paused with it. Roots pause before their rows are kept (keep_rows.lua).
local field = 'paused:' .. string.gsub(name, '%.member%-%d%d?%d?$', '')
local held, paused = unpack(call('HMGET', COUNTERS, 'outstanding', field))
paused = ARGV[7] == '' and paused
-- A count that cannot be read leaves no room.
local outstanding = tonumber(held or 0) or limit
local nursery = 'bucket:' .. rotations % 3
local names, replies = {}, {}
for k = 1, n do names[k] = slabs.name(KEYS[OWN + k]) end
local headers = call('HMGET', SLABS, unpack(names))
local values, ones, directory, ids, pending = {}, {}, {}, {}, {}
local v, o, d, p, accepted = 0, 0, 0, 0, 0

-- The spout's number here, which its first accepted slab gives it.
local spout = spouts.numbers[name]
local registered = registry
if not spout then
  local count, made, rest = string.match(registry, '^(%d+),(%d+)(.*)$')
  count, spout, rest = tonumber(count or 0), tonumber(made or 0), rest or ''
  if count >= MOST_SPOUTS then
    return redis.error_reply('ACKER shard holds trees or outcomes of ' .. count ..
      ' spouts, its most: remove one')
  end
  registered = (count + 1) .. ',' .. (spout + 1) .. rest .. '/' .. spout .. ':' .. name
  spouts.names[spout], spouts.streams[spout] = name, KEYS[OWN]
end

-- Slabs with messages that came before their track, or with ack values of zero.
local early_slabs = lazy(function(early_slabs)
  -- Merges messages that waited for the slab into its ack values, and returns these.
  function early_slabs.merge(key, slab, facts, value, waited, ahead)
    call('HDEL', FAILURES, slab)
    call('HDEL', EARLY, slab)
    counters.add('orphaned', waiting.lost(waited.words, waited.failures, #value / 8))
    if waited.words ~= '' then
      call('MSET', SCRATCH, value, OPERAND, sub(waited.words, 1, #value))
      call('BITOP', 'XOR', SCRATCH, SCRATCH, OPERAND)
      value = call('GET', SCRATCH)
      vectors.drop(key, slab)
      call('DEL', SCRATCH, OPERAND)
    end
    slabs.leave_bucket(slab, facts.rotation)
    if not ahead then waiting.drop_names(slab, facts) end
    slabs.flush() -- before the slab enters the nursery, which may be the bucket it leaves
    waiting.leave(facts, waited.bytes)
    return value
  end

  -- Tells of the trees that are finished before they are tracked; returns the ack values of trees that are
  -- not.
  function early_slabs.end_at_once(slab, facts, value, failures)
    local failed, completed, c = {}, {}, 0
    for index in pairs(failures or {}) do
      if index < facts.count then failed[#failed + 1] = index end
    end
    table.sort(failed)
    local reasons = {}
    for i = 1, #failed do reasons[i] = failures[failed[i]] end
    if #failed > 0 then outcomes.add_each('failed', reasons, slab, facts, failed, #failed) end
    local zeros, z = words.zeros(value)
    for i = 1, z do
      if not (failures and failures[zeros[i]]) then
        c = c + 1
        completed[c] = zeros[i]
      end
    end
    if c > 0 then outcomes.add('acked', '', slab, facts, completed, c) end
    return #failed > 0 and words.clear(value, failed) or value
  end
end)

for k = 1, n do
  local key, slab, header = KEYS[OWN + k], names[k], headers[k]
  local value, message_ids = ARGV[7 + 2 * k], ARGV[8 + 2 * k]
  local count, ahead = #value / 8, message_ids == ''
  local known = header and slabs.facts(header)
  local waited = known and not known.tracked and waiting.read(slab, vectors.get(key, slab) or '')
  if once and (ended or call('HEXISTS', staged, 'tracked:' .. slab) == 1) then
    replies[k] = 'D'
    counters.add('duplicates', 1)
  elseif header and not waited and not (known and known.tracked) then
    replies[k] = 'U'
  elseif known and known.tracked then
    local same = sub(header, -8) == slabs.digest(value) and known.spout == spout
      and call('HGET', MESSAGE_IDS, slab) == message_ids
    replies[k] = same and 'D' or 'C'
    if same then counters.add('duplicates', 1) end
  elseif paused then
    replies[k] = 'P'
    counters.add('rejected', count)
  elseif outstanding + count > limit or (ahead and not (known and waiting.named(known, count))) then
    replies[k] = outstanding + count > limit and 'R' or 'W'
    counters.add('rejected', count)
  else
    replies[k] = 'A'
    if staged and not ended then call('HSET', staged, 'tracked:' .. slab, 1) end
    outstanding = outstanding + count
    accepted = accepted + count
    local digest = slabs.digest(value)
    if known then value = early_slabs.merge(key, slab, known, value, waited, ahead) end
    header = slabs.header(TRACKED, spout, count, now, digest)
    if waited or find(value, ZERO, 1, true) then
      value = early_slabs.end_at_once(slab, slabs.facts(header), value, waited and waited.failures)
    end
    if value ~= words.none(count) then
      if vectors.is_one(slab) then
        ones[o + 1], ones[o + 2] = slab, value
        o = o + 2
      else
        values[v + 1], values[v + 2] = key, value
        v = v + 2
      end
      p = p + 1
      pending[p] = slab
    end
    directory[d + 1], directory[d + 2] = slab, header
    ids[d + 1], ids[d + 2] = slab, message_ids
    d = d + 2
  end
end
if v > 0 then call('MSET', unpack(values)) end
if o > 0 then call('HSET', ONES, unpack(ones)) end
if p > 0 then call('SADD', BUCKETS[rotations % 3], unpack(pending)) end
if d > 0 then
  call('HSET', SLABS, unpack(directory))
  call('HSET', MESSAGE_IDS, unpack(ids))
  if registered ~= registry then call('HSET', CLOCK, 'spouts', registered) end
end
for _, counter in ipairs({'outstanding', 'outstanding:' .. spout, 'tracked', nursery}) do
  counters.add(counter, accepted)
end
if not outcomes.make then outcomes.flush() end
counters.add('emitted', tonumber(ARGV[8]))
local letters = table.concat(replies)
local reply = finish(letters)
-- What a shard remembers of a call is short: the record is not in it.
if writer ~= '' and find(letters, 'P', 1, true) then return reply .. ' ' .. paused end
return reply
