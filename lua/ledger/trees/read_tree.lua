#!lua flags=no-writes
-- Reads one tree.
--
-- KEYS  keys of ledger/trees/includes/read.lua, then
--       1 vector  of the tree's slab
-- ARGV  1 index   of the tree in its slab
-- Returns {clock, trees}: clock is {now, rotations, rotated_at (-1: never), drained,
--       spouts (ledger/includes/shard.lua)}, all times in ms; trees
--       has one slab as read.lua describes it, or none if there is no such slab or no such tree in it.
-- Bounded: one slab.
--- @include "store/includes/lazy"
--- @include "ledger/includes/early"
--- @include "ledger/includes/id_pieces"
--- @include "ledger/trees/includes/read"
local key, index = KEYS[READ], tonumber(ARGV[1])
local slab = trees.slab(key)
local header = call('HGET', SLABS, slab)
if not header then return {clock, {}} end
if not trees.readable(header) then
  return redis.error_reply('UNREADABLE the record of a slab: ' .. #header .. ' bytes')
end
local kind, _, count = unpack_from(HEADER, header)
local vector = trees.vector(key, slab)
local failures
if kind == TRACKED then
  if index >= count then return {clock, {}} end
else
  failures = trees.failures(slab)
  local word = sub(vector, index * 8 + 1, index * 8 + 8)
  if (word == '' or word == ZERO) and not failures[index] then return {clock, {}} end
end
return {clock, {trees.describe(1, slab, header, vector, {index}, nil, failures)}}
