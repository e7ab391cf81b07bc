-- Updates trees: XORs the ids of emitted and acked tuples into the ack values.
--
-- KEYS  keys of ledger/includes/shard.lua, then
--       1 step_counts, 2 mark, 3 mark, 4 mark, 5 mark  if the acking step is known (marks.lua),
--                    otherwise omitted
--       ... vector   of each slab of the sparse part, then of the dense part; no slab twice
-- ARGV  1 spouts, 2 writer, 3 sequence
--       4 limit      most bytes that wait for their track
--       5 emitted    tuples that the caller has emitted into trees since its last report: XORs do not
--                    show it
--       6 by         the acking step (ledger/includes/marks.lua); empty if it is unknown
--       7 acked      tuples that the caller has acked since its last report
--       8 trees      if the acking step is known: the number of trees of each slab of the dense part (u16)
--       9 counts, 10 indexes, 11 deltas  of the sparse part
--       12 ones      deltas of slabs of one
--       ... deltas   a vector for each slab of the dense part
--       ... slab     of one, its name
-- Returns "late orphaned": numbers of deltas for finished trees, and for trees without room to wait;
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
if dense <= #KEYS then
  local deltas = {unpack(ARGV, 13, 13 + #KEYS - dense)}
  update.dense.update({unpack(KEYS, dense)}, deltas, of_many, dense - sparse)
end
if #ones > 0 then update.ones.update(ones, ARGV[12], of_ones) end
update.flush()
marks.flush(OWN)
return finish(update.late .. ' ' .. update.orphaned .. slabs.refusals)
