-- Fails trees: final and at once.
--
-- KEYS  those of ledger/includes/shard.lua, then
--       1 step_counts  where it is known who fails them (ledger/includes/marks.lua), else left out
--       ... vector   of each slab; no slab twice
--       last staged  of a commit: what it has staged of them in this shard (lua/streams/staging/stage.lua)
--       last made    of a commit whose inputs are acked after it (ledger/includes/made.lua)
-- ARGV  1 spouts, 2 writer, 3 sequence
--       4 limit      of the bytes that wait for their track
--       5 reasons    (length as u16, text of up to 1 KiB)*
--       6 why        u16 for each of the indexes: its reason, from 0; empty where there is one reason
--       7 counts     u16 for each slab: how many of the indexes are its own
--       8 indexes    u16 each
--       9 kept       how many of its trees that failed or expired the shard keeps for people
--       10 by        who fails them, as of ledger/includes/marks.lua; empty where that is not known
--       11 call      of a commit: which of its calls this is. It takes effect once, and not when what was
--                    staged is gone: whoever deletes that has made all of them
-- Returns "failed late orphaned", and after that the slabs that were refused, 16 hexadecimal digits each:
--       their record cannot be read. A tree not tracked yet waits as failed, and its track reports it.
-- Tells the spouts: failed.
-- A tree that its commit has failed already is passed over: it is over, and by nobody else.
-- Bounded by the caller: at most 250 trees a call.
--- @chained true
--- @include "ledger/includes/shard"
--- @include "ledger/includes/once"
--- @include "ledger/includes/id_pieces"
--- @include "ledger/includes/drop_id_pieces"
--- @include "ledger/includes/outcomes"
--- @include "ledger/includes/recent"
--- @include "ledger/includes/early"
--- @include "ledger/includes/waiting"
--- @include "ledger/includes/made"
--- @include "ledger/includes/marks"
local why, counts, indexes = ARGV[6], ARGV[7], ARGV[8]
waiting.limit = tonumber(ARGV[4])
recent.kept = tonumber(ARGV[9])
local reasons = outcomes.unpack_reasons(ARGV[5])
local reason = #why == 0 and reasons[1]
local late, orphaned, total, n = 0, 0, 0, 0
local by = ARGV[10]
local first = by == '' and OWN or OWN + 1
local staged, noted = KEYS[first + #counts / 2], KEYS[first + #counts / 2 + 1]
local own = {} -- trees that the commit has failed already
if staged then
  local mark = 'failed:' .. ARGV[11]
  if call('EXISTS', staged) == 0 or call('HEXISTS', staged, mark) == 1 then
    counters.add('duplicates', 1)
    return finish('0 0 0')
  end
  call('HSET', staged, mark, 1)
  if noted then
    local names = {}
    for k = 1, #counts / 2 do names[k] = slabs.name(KEYS[first + k - 1]) end
    own = made.failed(noted, names) or own
    made.note(noted, staged .. ' ' .. mark)
  end
end
for k = 1, #counts / 2 do
  local key = KEYS[first + k - 1]
  local slab = slabs.name(key)
  local one = vectors.is_one(slab)
  local header = call('HGET', SLABS, slab) or waiting.open(slab)
  local facts = header and slabs.facts(header)
  local tracked = facts and facts.tracked
  local failed, f, early_at, packed, own_reasons, early_reasons = {}, 0, {}, {}, {}, {}
  if header and not facts then slabs.refuse(slab) end
  for _ = 1, (unpack_from('<I2', counts, k * 2 - 1)) do
    n = n + 1
    local index, word = unpack_from('<I2', indexes, n * 2 - 1), sub(indexes, n * 2 - 1, n * 2)
    local ended = own[slab] and own[slab][word]
    local said = reason or reasons[unpack_from('<I2', why, n * 2 - 1) + 1]
    if not header then
      orphaned = orphaned + (ended and 0 or 1)
    elseif facts and not tracked and not ended then
      early_at[#early_at + 1] = word
      early_reasons[#early_at] = said
    elseif tracked and not ended then
      local value = index < facts.count and vectors.word(key, slab, index) or ZERO
      if value == ZERO then
        late = late + 1
      else
        if not one then call('SETRANGE', key, index * 8, ZERO) end
        f = f + 1
        failed[f], packed[f], own_reasons[f] = index, word, said
      end
    end
  end
  if tracked and f > 0 then
    total = total + f
    if noted then made.fail(noted, slab, table.concat(packed)) end
    if reason then
      outcomes.add('failed', reason, slab, facts, failed, f)
    else
      outcomes.add_each('failed', own_reasons, slab, facts, failed, f)
    end
    if one or call('BITPOS', key, 1) == -1 then
      vectors.drop(key, slab)
      slabs.leave_bucket(slab, facts.rotation)
    end
  elseif #early_at > 0 then
    local lost = waiting.fail(slab, early_at, early_reasons)
    if lost then orphaned = orphaned + lost else slabs.refuse(slab) end
  end
end
marks.failed(KEYS[OWN], by, total)
counters.add('late', late)
counters.add('orphaned', orphaned)
outcomes.flush()
slabs.flush()
return finish(total .. ' ' .. late .. ' ' .. orphaned .. slabs.refusals)
