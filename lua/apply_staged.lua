-- Applies one chunk of a staged segment's vectors: the first time its tuples are emitted into their trees,
-- the second time they are acked. How often is kept with them, so a call that comes again changes nothing.
--
-- KEYS  those of includes/shard.lua, then
--       1 staged      hash (lua/stage.lua)
--       2 made        of a commit that needs something (includes/made.lua), else left out
--       3 step_counts, 4 mark, 5 mark, 6 mark, 7 mark  where it is known who acks (includes/marks.lua),
--                   else left out
--       ... vector    of each slab of the chunk that is not of one; no slab twice
-- ARGV  1 spouts
--       2 chunk       0 ...
--       3 to          state the chunk is to reach: 1 applied, 2 acked
--       4 limit       of the bytes that wait for their track
--       5 needed      what `made` must hold before the commit's inputs are acked (made.holds); empty without
--                     `made`
--       6 by          who acks, as of includes/marks.lua; empty where that is not known
--       7 left        what is not acked with the chunk though it is staged in it: for each of its slabs,
--                     those of one last, the length of the packed indexes of such trees and these (u16
--                     each), or 65535 alone for all trees. Empty: nothing
--       ... slab      of one: the names of the others of the chunk
-- Returns "LOST" where `made` does not hold that, or where what is to be acked was never applied: the store
--       has lost what the commit made, or that the chunk was emitted. Nothing is acked then. Otherwise what
--       update.lua does, after its two numbers one more: deltas for trees that nobody knew of, which wait
--       for their track now. "0 0 0" where the chunk was there already, or the segment gone. An error where
--       what was staged cannot be read: nothing is applied then.
-- An ack for a tree that the commit has failed itself, or leaves out, is not applied: it is not late. One
--       for a slab that nobody knows of is late, and does not wait: a slab is tracked before its tuples are
--       published.
-- The hash is deleted when all its chunks are acked.
-- Tells the spouts: acked.
-- Bounded by the caller: what a chunk holds is what one call of update.lua may.
--- @chained reply ~= 'LOST'
--- @include "shard"
--- @include "outcomes"
--- @include "id_pieces"
--- @include "drop_id_pieces"
--- @include "early"
--- @include "waiting"
--- @include "finished"
--- @include "update"
--- @include "made"
--- @include "marks"
local staged, chunk, to = KEYS[OWN], ARGV[2], ARGV[3]
local of_commit = ARGV[5] ~= ''
local by, marks_at = ARGV[6], of_commit and OWN + 2 or OWN + 1
local vectors_at = by == '' and marks_at or marks_at + marks.KEYS
waiting.limit = tonumber(ARGV[4])
local at = tonumber(chunk) + 1
local state = call('HGET', staged, 'state')
local was = state and sub(state, at, at)
if not state or was >= to then
  call('HINCRBY', COUNTERS, 'duplicates', 1)
  return '0 0 0'
end
if of_commit and to == '2' and not made.holds(KEYS[OWN + 1], ARGV[5]) then return 'LOST' end

-- Notes that the chunk has reached the state.
local function reach()
  state = sub(state, 1, at - 1) .. to .. sub(state, at + 1)
  if state == rep('2', #state) then
    call('DEL', staged)
  else
    call('HSET', staged, 'state', state)
  end
end

if to == '2' and was == '0' then -- it was published, and the store has lost then that it was applied
  reach()
  return 'LOST'
end

local counts, indexes, deltas, ones, lengths, packed = unpack(call('HMGET', staged, 'counts:' .. chunk,
  'indexes:' .. chunk, 'deltas:' .. chunk, 'ones:' .. chunk, 'lengths:' .. chunk, 'vectors:' .. chunk))
local first_dense, pieces

-- Whether what was staged is whole: all is checked before anything is applied.
local function whole()
  local pairs_of, from = 0, 1
  for k = 1, #counts / 2 do pairs_of = pairs_of + unpack_from('<I2', counts, k * 2 - 1) end
  first_dense, pieces = vectors_at + #counts / 2, {}
  for k = 1, #lengths / 2 do -- one for each slab of the dense part
    local bytes = unpack_from('<I2', lengths, k * 2 - 1) * 8
    pieces[k] = sub(packed, from, from + bytes - 1)
    from = from + bytes
  end
  return at <= #state and #indexes == 2 * pairs_of and #deltas == 8 * pairs_of and from == #packed + 1
    and #pieces == #KEYS - first_dense + 1 and #ones == 8 * (#ARGV - 7)
end

local read, sound = pcall(whole) -- it raises where a part is missing, or ends in the middle
if not read or not sound then
  return redis.error_reply('UNREADABLE the vectors of a segment: chunk ' .. chunk .. ' of ' .. #state)
end

local ALL = setmetatable({}, {__index = function() return true end})

-- The trees that are not acked: the commit has failed them itself, or they are those of ARGV[7].
-- Slab -> packed index -> true; nil where there is none. Bounded: by the trees of a chunk.
local function not_acked(names)
  local found = of_commit and made.failed(KEYS[OWN + 1], names)
  local left, from = ARGV[7], 1
  if left == '' then return found end
  found = found or {}
  for k = 1, #names do
    local length = unpack_from('<I2', left, from)
    local own = length > 0 and (found[names[k]] or {}) or nil
    if sub(left, from + 2, from + length + 1) == '\255\255' then own = ALL end
    for place = from + 2, own == ALL and 0 or from + length, 2 do own[sub(left, place, place + 1)] = true end
    found[names[k]] = own or found[names[k]]
    from = from + 2 + length
  end
  return found
end

-- Takes what is for such trees out of all parts.
local function leave_out(failed, names, singles)
  local kept_counts, kept_indexes, kept_deltas, n, kept = {}, {}, {}, 0, 0
  for k = 1, #counts / 2 do
    local own, left = failed[names[k]] or {}, kept
    for _ = 1, (unpack_from('<I2', counts, k * 2 - 1)) do
      n = n + 1
      local index = sub(indexes, n * 2 - 1, n * 2)
      if not own[index] then
        kept = kept + 1
        kept_indexes[kept], kept_deltas[kept] = index, sub(deltas, n * 8 - 7, n * 8)
      end
    end
    kept_counts[k] = pack('<I2', kept - left)
  end
  counts, indexes, deltas = table.concat(kept_counts), table.concat(kept_indexes), table.concat(kept_deltas)
  for k = 1, #pieces do
    local own, hit = failed[names[#counts / 2 + k]] or {}, {}
    for index in pairs(own) do
      local number = unpack_from('<I2', index)
      if number * 8 < #pieces[k] then hit[#hit + 1] = number end
    end
    table.sort(hit)
    pieces[k] = own == ALL and words.none(#pieces[k] / 8) or words.clear(pieces[k], hit)
  end
  local kept_singles, kept_ones = {}, {}
  for k = 1, #singles do
    if not failed[singles[k]] then
      kept_singles[#kept_singles + 1] = singles[k]
      kept_ones[#kept_ones + 1] = sub(ones, k * 8 - 7, k * 8)
    end
  end
  ones = table.concat(kept_ones)
  return kept_singles
end

local singles, of_keys, of_singles = {unpack(ARGV, 8)}
if to == '2' and by ~= '' then
  local trees, tuples = unpack(call('HMGET', staged, 'trees:' .. chunk, 'tuples:' .. chunk))
  local many, of_many = {}, counts .. (trees or '')
  for k = vectors_at, #KEYS do many[#many + 1] = slabs.name(KEYS[k]) end
  if #of_many == 2 * #many then
    of_keys, of_singles = marks.acked(marks_at, by, tonumber(tuples) or 0, many, of_many, singles)
  end
end
if to == '2' then
  update.waits = false
  if of_commit or ARGV[7] ~= '' then
    local names = {}
    for k = vectors_at, #KEYS do names[#names + 1] = slabs.name(KEYS[k]) end
    local all = {unpack(names)}
    for k = 1, #singles do all[#all + 1] = singles[k] end
    local left = not_acked(all)
    if left then singles, of_singles = leave_out(left, names, singles), nil end
  end
end
update.sparse(vectors_at, counts, indexes, deltas, of_keys)
update.dense({unpack(KEYS, first_dense)}, pieces, of_keys, first_dense - vectors_at)
update.ones(singles, ones, of_singles)
reach()
if of_commit and to == '1' and not find(state, '0', 1, true) then made.note(KEYS[OWN + 1], staged) end
update.flush()
counters.flush()
return update.late .. ' ' .. update.orphaned .. ' ' .. update.unknown .. slabs.refusals
