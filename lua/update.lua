-- Updates trees: XORs into the ack values what was emitted and acked.
--
-- KEYS  those of includes/shard.lua, then
--       ... vector   of each slab of the sparse part, then of the dense part; no slab twice
-- ARGV  1 spouts, 2 writer, 3 sequence
--       4 limit      of the bytes that wait for their track
--       5 emitted    how many tuples the caller has emitted into trees since it said so last: XORs do not
--                    tell
--       6 counts, 7 indexes, 8 deltas  of the sparse part
--       9 ones       deltas of slabs of one
--       ... deltas   a vector for each slab of the dense part
--       ... slab     of one, its name
-- Returns "late orphaned": how many of the deltas were for finished trees, and for trees that may not wait;
--       after that the slabs that were refused, 16 hexadecimal digits each: their record cannot be read.
-- Tells the spouts: acked.
--- @include "shard"
--- @include "once"
--- @include "outcomes"
--- @include "id_pieces"
--- @include "drop_id_pieces"
--- @include "early"
--- @include "waiting"
--- @include "finished"
--- @include "update"
waiting.limit = tonumber(ARGV[4])
counters.add('emitted', tonumber(ARGV[5]))
local dense = OWN + #ARGV[6] / 2
update.sparse(OWN, ARGV[6], ARGV[7], ARGV[8])
update.dense({unpack(KEYS, dense)}, {unpack(ARGV, 10, 10 + #KEYS - dense)})
update.ones({unpack(ARGV, 11 + #KEYS - dense)}, ARGV[9])
update.flush()
return finish(update.late .. ' ' .. update.orphaned .. slabs.refusals)
