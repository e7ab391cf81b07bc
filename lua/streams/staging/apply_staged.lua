-- Applies chunks of staged segments' vectors: the first time their tuples are emitted into their trees, the
-- second time they are acked. How often is kept with them, so a call that comes again changes nothing.
--
-- KEYS  those of ledger/includes/shard.lua, then
--       1 made        of a commit that needs something (ledger/includes/made.lua), else left out
--       2 step_counts, 3 mark, 4 mark, 5 mark, 6 mark  where it is known who acks (marks.lua),
--                   else left out
--       ... staged, [vectors]  of each chunk: a hash (stage.lua), and the vector of each of its slabs
--                   that is not of one; no slab twice in a chunk
-- ARGV  1 spouts
--       2 to          state the chunks are to reach: 1 applied, 2 acked
--       3 limit       of the bytes that wait for their track
--       4 needed      what `made` must hold before the commit's inputs are acked (made.holds); empty without
--                     `made`
--       5 by          who acks, as of ledger/includes/marks.lua; empty where that is not known
--       ... number, many, ones, left, [slabs]  of each chunk:
--           number      0 ..., in its hash; no chunk twice
--           many, ones  how many vectors it has among KEYS, and how many slabs of one
--           left        what is not acked with the chunk though it is staged in it: for each of its slabs,
--                       those of one last, the length of the packed indexes of such trees and these (u16
--                       each), or 65535 alone for all trees. Empty: nothing
--           slabs       the names of those of one
-- Returns what update.lua does, after its two numbers two more: deltas for trees that nobody knew of, which
--       wait for their track now; and chunks that are not acked, or not for all of their trees, for the store
--       has lost what the commit made (`made` does not hold it), or that they were ever applied. A chunk that
--       was there already, or whose segment is gone, counts for nothing. An error where what was staged
--       cannot be read: nothing is applied then.
-- An ack for a tree that the commit has failed itself, or leaves out, is not applied: it is not late. One
--       for a slab that nobody knows of is late, and does not wait: a slab is tracked before its tuples are
--       published.
-- A hash is deleted when all its chunks are acked.
-- Tells the spouts: acked.
-- Bounded by the caller: what the chunks hold is together what one call of update.lua may.
--- @chained string.find(reply, '^%d+ %d+ %d+ 0') ~= nil
--- @include "ledger/includes/shard"
--- @include "ledger/includes/outcomes"
--- @include "ledger/includes/id_pieces"
--- @include "ledger/includes/drop_id_pieces"
--- @include "ledger/includes/early"
--- @include "ledger/includes/waiting"
--- @include "ledger/includes/finished"
--- @include "ledger/includes/update"
--- @include "ledger/includes/made"
--- @include "ledger/includes/marks"
local to, needed, by = ARGV[2], ARGV[4], ARGV[5]
local acking, of_commit = to == '2', needed ~= ''
local marks_at = of_commit and OWN + 1 or OWN
local holds = not acking or not of_commit or made.holds(KEYS[OWN], needed)
local states, chunks, lost = {}, {}, 0 -- states: of all chunks of a hash, by its key
waiting.limit = tonumber(ARGV[3])

-- Takes the next chunk of the call. Nothing is changed by that.
local next_key, next_word = by == '' and marks_at or marks_at + marks.KEYS, 6
local function take()
  local staged, number, many = KEYS[next_key], ARGV[next_word], tonumber(ARGV[next_word + 1])
  local ones, left = tonumber(ARGV[next_word + 2]), ARGV[next_word + 3]
  local first, slab = next_key + 1, next_word + 4
  next_key, next_word = first + many, slab + ones
  states[staged] = states[staged] or call('HGET', staged, 'state')
  local at, state = tonumber(number) + 1, states[staged]
  local was = state and sub(state, at, at)
  -- Where it is noted that the commit has applied it, a late copy of the call that staged it has staged it
  -- again, since it was acked.
  local again = state and of_commit and not acking and call('HEXISTS', KEYS[OWN], staged) == 1
  if not state or was >= to or again then return counters.add('duplicates', 1) end
  if not holds then
    lost = lost + 1
    return
  end
  local chunk = {staged = staged, number = number, at = at, left = left, first = first, many = many}
  chunk.singles = {unpack(ARGV, slab, slab + ones - 1)}
  chunk.forgotten = acking and was == '0' -- it was published: the store has lost then that it was applied
  chunks[#chunks + 1] = chunk
end

-- Reads what was staged; whether it is whole. It raises where a part is missing, or ends in the middle.
local function read(chunk)
  local number, pairs_of, from = chunk.number, 0, 1
  local counts, indexes, deltas, ones, lengths, packed, trees, tuples = unpack(call('HMGET', chunk.staged,
    'counts:' .. number, 'indexes:' .. number, 'deltas:' .. number, 'ones:' .. number,
    'lengths:' .. number, 'vectors:' .. number, 'trees:' .. number, 'tuples:' .. number))
  for k = 1, #counts / 2 do pairs_of = pairs_of + unpack_from('<I2', counts, k * 2 - 1) end
  local pieces = {}
  for k = 1, #lengths / 2 do -- one for each slab of the dense part
    local bytes = unpack_from('<I2', lengths, k * 2 - 1) * 8
    pieces[k] = sub(packed, from, from + bytes - 1)
    from = from + bytes
  end
  chunk.counts, chunk.indexes, chunk.deltas, chunk.ones, chunk.pieces = counts, indexes, deltas, ones, pieces
  chunk.sparse, chunk.trees, chunk.tuples = #counts / 2, trees or '', tonumber(tuples) or 0
  return chunk.at <= #states[chunk.staged] and #indexes == 2 * pairs_of and #deltas == 8 * pairs_of
    and from == #packed + 1 and #pieces == chunk.many - chunk.sparse and #ones == 8 * #chunk.singles
end

-- The names of the slabs of a chunk: those of many, and all.
local function names_of(chunk)
  local many, all = {}, {}
  for k = 1, chunk.many do
    many[k] = slabs.name(KEYS[chunk.first + k - 1])
    all[k] = many[k]
  end
  for k = 1, #chunk.singles do all[#all + 1] = chunk.singles[k] end
  return many, all
end

local ALL = setmetatable({}, {__index = function() return true end}) -- stands for all trees of a slab
local left_out = lazy(function(left_out)
  -- The trees that are not acked: the commit has failed them itself, or they are those that are left.
  -- found: those that it has failed, and gets all. Slab -> packed index -> true. Bounded: by the trees of a
  -- chunk.
  function left_out.find(left, found, names)
    if left == '' then return found end
    local from = 1
    for k = 1, #names do
      local length = unpack_from('<I2', left, from)
      local own = length > 0 and (found[names[k]] or {}) or nil
      if sub(left, from + 2, from + length + 1) == '\255\255' then own = ALL end
      for place = from + 2, own == ALL and 0 or from + length, 2 do
        own[sub(left, place, place + 1)] = true
      end
      found[names[k]] = own or found[names[k]]
      from = from + 2 + length
    end
    return found
  end

  -- Takes what is for such trees out of all parts of a chunk. many: its slabs of many.
  function left_out.take(chunk, failed, many)
    local counts, indexes, deltas, n, kept = {}, {}, {}, 0, 0
    for k = 1, chunk.sparse do
      local own, left = failed[many[k]] or {}, kept
      for _ = 1, (unpack_from('<I2', chunk.counts, k * 2 - 1)) do
        n = n + 1
        local index = sub(chunk.indexes, n * 2 - 1, n * 2)
        if not own[index] then
          kept = kept + 1
          indexes[kept], deltas[kept] = index, sub(chunk.deltas, n * 8 - 7, n * 8)
        end
      end
      counts[k] = pack('<I2', kept - left)
    end
    chunk.counts, chunk.indexes = table.concat(counts), table.concat(indexes)
    chunk.deltas = table.concat(deltas)
    local pieces = chunk.pieces
    for k = 1, #pieces do
      local own, hit = failed[many[chunk.sparse + k]] or {}, {}
      for index in pairs(own) do
        local number = unpack_from('<I2', index)
        if number * 8 < #pieces[k] then hit[#hit + 1] = number end
      end
      table.sort(hit)
      pieces[k] = own == ALL and words.none(#pieces[k] / 8) or words.clear(pieces[k], hit)
    end
    local singles, ones = {}, {}
    for k = 1, #chunk.singles do
      if not failed[chunk.singles[k]] then
        singles[#singles + 1] = chunk.singles[k]
        ones[#ones + 1] = sub(chunk.ones, k * 8 - 7, k * 8)
      end
    end
    chunk.singles, chunk.ones = singles, table.concat(ones)
  end
end)

local function apply(chunk)
  local of_many, of_ones
  if acking then
    local many, all = names_of(chunk)
    local counts = chunk.counts .. chunk.trees
    if by ~= '' and #counts == 2 * #many then
      of_many, of_ones = marks.acked(marks_at, by, chunk.tuples, many, counts, chunk.singles)
    end
    local failed, dropped = of_commit and made.failed(KEYS[OWN], all) or nil, {}
    if of_commit and made.dropped(KEYS[OWN], all, dropped, ALL) then
      lost, failed = lost + 1, failed or {}
      for slab in pairs(dropped) do failed[slab] = ALL end -- those of the chunk
    end
    if failed or chunk.left ~= '' then
      left_out.take(chunk, left_out.find(chunk.left, failed or {}, all), many)
      of_ones = nil
    end
  end
  local dense, orphaned = chunk.first + chunk.sparse, update.orphaned
  update.sparse(chunk.first, chunk.counts, chunk.indexes, chunk.deltas, of_many)
  update.dense({unpack(KEYS, dense, chunk.first + chunk.many - 1)}, chunk.pieces, of_many, chunk.sparse)
  update.ones(chunk.singles, chunk.ones, of_ones)
  if of_commit and not acking then
    local _, all = names_of(chunk)
    made.emitted(KEYS[OWN], all, update.orphaned > orphaned)
  end
end

-- Notes that a chunk has reached the state.
local function reach(chunk)
  local state = states[chunk.staged]
  state = sub(state, 1, chunk.at - 1) .. to .. sub(state, chunk.at + 1)
  states[chunk.staged] = state
  if state == rep('2', #state) then
    call('DEL', chunk.staged)
  else
    call('HSET', chunk.staged, 'state', state)
  end
  if of_commit and not acking and not find(state, '0', 1, true) then made.note(KEYS[OWN], chunk.staged) end
end

while next_word <= #ARGV do take() end
for _, chunk in ipairs(chunks) do -- all is checked before anything is applied
  local done, sound = true, true
  if not chunk.forgotten then done, sound = pcall(read, chunk) end
  if not done or not sound then
    return redis.error_reply('UNREADABLE the vectors of a segment: chunk ' .. chunk.number .. ' of '
      .. #states[chunk.staged])
  end
end
update.waits = not acking
for _, chunk in ipairs(chunks) do
  if chunk.forgotten then lost = lost + 1 else apply(chunk) end
  reach(chunk)
end
update.flush()
marks.flush(marks_at)
counters.flush()
return update.late .. ' ' .. update.orphaned .. ' ' .. update.unknown .. ' ' .. lost .. slabs.refusals
