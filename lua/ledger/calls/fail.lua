-- Fails trees: final and at once.
--
-- KEYS  keys of ledger/includes/shard.lua, then
--       1 step_counts  if the failing step is known (ledger/includes/marks.lua), otherwise omitted
--       ... vector   of each slab; no slab twice
--       last staged  of a commit: the trees that it has staged in this shard (lua/streams/staging/stage.lua)
--       last applied  of a commit whose inputs are acked after it (ledger/includes/applied.lua)
-- ARGV  1 spouts, 2 writer, 3 sequence
--       4 limit      most bytes that wait for their track
--       5 reasons    (length as u16, text of up to 1 KiB)*
--       6 why        u16 for each of the indexes: its reason, from 0; empty for a single reason
--       7 counts     u16 for each slab: the number of its indexes
--       8 indexes    u16 each
--       9 kept       number of failed or expired trees that the shard keeps for people
--       10 by        the failing step (ledger/includes/marks.lua); empty if it is unknown
--       11 call      of a commit: the number of this call. It takes effect once. It has no effect if the
--                    staged trees are gone: they are deleted after all calls were made
--                    empty for fails of none
--       12 stay      ms for which fails wait for their track, through all rotations; 0 for three rotations
-- Returns "failed late orphaned", and after that the slabs that were refused, 16 hexadecimal digits each:
--       their record cannot be read. An untracked tree waits as failed, and its track reports it.
-- Tells the spouts: failed.
-- A tree that its commit has failed before is passed over: it is over by this commit.
-- Where a fail of a commit may be gone before its track, bits of the commit do not count (receive.lua).
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
--- @include "ledger/includes/applied"
--- @include "ledger/calls/includes/failing"
--- @include "ledger/includes/marks"
local why, counts, indexes = ARGV[6], ARGV[7], ARGV[8]
waiting.limit = tonumber(ARGV[4])
recent.kept = tonumber(ARGV[9])
local reasons = outcomes.unpack_reasons(ARGV[5])
local reason = #why == 0 and reasons[1]
local n = 0
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
    own = applied.failed(noted, names) or own
    applied.note(noted, staged .. ' ' .. mark)
  end
end
for k = 1, #counts / 2 do
  local key, trees, own_reasons = KEYS[first + k - 1], {}, {}
  local slab = slabs.name(key)
  for i = 1, (unpack_from('<I2', counts, k * 2 - 1)) do
    n = n + 1
    trees[i] = sub(indexes, n * 2 - 1, n * 2)
    own_reasons[i] = reason or reasons[unpack_from('<I2', why, n * 2 - 1) + 1]
  end
  failing.slab(key, slab, trees, own_reasons, reason, own[slab], noted, tonumber(ARGV[12] or 0))
end
marks.failed(KEYS[OWN], by, failing.failed)
counters.add('late', failing.late)
counters.add('orphaned', failing.orphaned)
outcomes.flush()
slabs.flush()
return finish(failing.failed .. ' ' .. failing.late .. ' ' .. failing.orphaned .. slabs.refusals)
