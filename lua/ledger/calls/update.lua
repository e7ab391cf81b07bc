-- Updates trees: XORs into the ack values what was emitted and acked.
--
-- KEYS  those of ledger/includes/shard.lua, then
--       1 step_counts, 2 mark, 3 mark, 4 mark, 5 mark  where it is known who acks (marks.lua),
--                    else left out
--       ... vector   of each slab of the sparse part, then of the dense part; no slab twice
-- ARGV  1 spouts, 2 writer, 3 sequence
--       4 limit      of the bytes that wait for their track
--       5 emitted    how many tuples the caller has emitted into trees since it said so last: XORs do not
--                    tell
--       6 by         who acks, as of ledger/includes/marks.lua; empty where that is not known
--       7 acked      how many tuples the caller has acked since it said so last
--       8 trees      where it is known who acks: how many trees of each slab of the dense part (u16)
--       9 counts, 10 indexes, 11 deltas  of the sparse part
--       12 ones      deltas of slabs of one
--       ... deltas   a vector for each slab of the dense part
--       ... slab     of one, its name
-- Returns "late orphaned": how many of the deltas were for finished trees, and for trees that may not wait;
--       after that the slabs that were refused, 16 hexadecimal digits each: their record cannot be read.
-- Tells the spouts: acked.
--- @include "ledger/includes/shard"
--- @include "ledger/includes/once"
--- @include "ledger/includes/outcomes"
--- @include "ledger/includes/id_pieces"
--- @include "ledger/includes/drop_id_pieces"
--- @include "ledger/includes/early"
--- @include "ledger/includes/waiting"
--- @include "ledger/includes/finished"
--- @include "ledger/includes/update"
--- @include "ledger/includes/marks"
local by, counts = ARGV[6], ARGV[9]
local sparse = by == '' and OWN or OWN + marks.KEYS
local dense = sparse + #counts / 2
local ones = {unpack(ARGV, 14 + #KEYS - dense)}
waiting.limit = tonumber(ARGV[4])
counters.add('emitted', tonumber(ARGV[5]))
local of_many, of_ones
if by ~= '' then
  local many = {}
  for k = sparse, #KEYS do many[#many + 1] = slabs.name(KEYS[k]) end
  of_many, of_ones = marks.acked(OWN, by, tonumber(ARGV[7]), many, counts .. ARGV[8], ones)
end
update.sparse(sparse, counts, ARGV[10], ARGV[11], of_many)
update.dense({unpack(KEYS, dense)}, {unpack(ARGV, 13, 13 + #KEYS - dense)}, of_many, dense - sparse)
update.ones(ones, ARGV[12], of_ones)
update.flush()
marks.flush(OWN)
return finish(update.late .. ' ' .. update.orphaned .. slabs.refusals)
