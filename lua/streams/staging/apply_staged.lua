-- Applies chunks of staged segments' vectors: the first time their tuples are emitted into their trees, the
-- second time they are acked. The chunks keep their state, so a repeated call changes nothing.
--
-- KEYS  keys of ledger/includes/shard.lua, then
--       1 waits       hash: waiting bits of external segments in this shard (external/receive.lua)
--       2 applied     of a commit with needs (ledger/includes/applied.lua), otherwise omitted
--       3 step_counts, 4 mark, 5 mark, 6 mark, 7 mark  if the acking step is known (marks.lua),
--                   otherwise omitted
--       ... staged, [vectors]  of each chunk: a hash (stage.lua), and the vector of each of its slabs
--                   of many; no slab twice in a chunk
-- ARGV  1 spouts
--       2 to          state the chunks are to reach: 1 applied, 2 acked
--       3 limit       most bytes that wait for their track
--       4 needed      the content that `applied` needs before the commit's inputs are acked (applied.holds);
--                     empty without `applied`
--       5 by          the acking step (ledger/includes/marks.lua); empty if it is unknown
--       6 kept        number of failed or expired trees that the shard keeps for people
--       7 stay        ms for which emits wait for their track, however many rotations come; 0 for three
--                     rotations. Emits of an external segment wait for its `ttl` at least
--       ... number, many, ones, left, [slabs]  of each chunk:
--           number      0 ..., in its hash; no chunk twice
--           many, ones  number of its vectors in KEYS, and number of its slabs of one
--           left        the staged trees that are not acked with the chunk: for each of its slabs, slabs of
--                       one last, the length of the packed indexes of such trees and these (u16 each), or
--                       65535 alone for all trees. Empty: none
--           slabs       the names of its slabs of one
-- Returns the reply of update.lua, with three further numbers: deltas for unknown trees, which wait for their
--       track now; chunks that are not acked, or not for all of their trees, because the store has lost work
--       of the commit (`applied` does not hold it), or the first application of the chunk; and external
--       segments that are emitted now and are full, void, or have fails left, or chunks that are not acked,
--       because their external segment is not full. A chunk in that state already, or of a missing segment,
--       does not count; but an emitted external segment that is not open counts for a copy of the call, too.
--       An error if the staged data cannot be read: nothing is applied then.
-- An external segment is emitted by the commit that has staged it: a chunk of another one does not count, and
--       is not noted, so the commit that asks for it acks nothing.
-- The last emitted chunk of an external segment (streams/includes/external.lua) takes the fails that waited
--       for it, and then counts the bits. It is acked only if it is full.
-- An ack for a tree that the commit has failed itself, or leaves out, is not applied: it is not late. An ack
--       for an unknown slab is late, and does not wait: a slab is tracked before its tuples are published.
-- A hash is deleted when all its chunks are acked.
-- Tells the spouts: acked, failed.
-- Bounded by the caller: the chunks together hold at most the work of one call of update.lua.
--- @chained string.find(reply, '^%d+ %d+ %d+ 0') ~= nil
--- @include "ledger/includes/shard"
--- @include "ledger/includes/outcomes"
--- @include "ledger/includes/id_pieces"
--- @include "ledger/includes/drop_id_pieces"
--- @include "ledger/includes/early"
--- @include "ledger/includes/waiting"
--- @include "ledger/includes/finished"
--- @include "ledger/includes/update"
--- @include "ledger/includes/applied"
--- @include "ledger/includes/marks"
--- @include "ledger/includes/recent"
--- @include "ledger/calls/includes/failing"
--- @include "streams/includes/external"
local to, needed, by = ARGV[2], ARGV[4], ARGV[5]
local acking, of_commit = to == '2', needed ~= ''
local waits, progress = KEYS[OWN], KEYS[OWN + 1]
local marks_at = of_commit and OWN + 2 or OWN + 1
local holds = not acking or not of_commit or applied.holds(progress, needed)
local states, chunks, lost, noted = {}, {}, 0, 0 -- states: of all chunks of a hash, by its key
local facts, ended = {}, false -- of the hash of an external segment, by its key
waiting.limit, recent.kept = tonumber(ARGV[3]), tonumber(ARGV[6])

-- Takes the next chunk of the call. Nothing is changed by that.
local next_key, next_word = by == '' and marks_at or marks_at + marks.KEYS, 8
local function take()
  local staged, number, many = KEYS[next_key], ARGV[next_word], tonumber(ARGV[next_word + 1])
  local ones, left = tonumber(ARGV[next_word + 2]), ARGV[next_word + 3]
  local first, slab = next_key + 1, next_word + 4
  next_key, next_word = first + many, slab + ones
  if not states[staged] then
    local state, rows, alone, full, of, void, fails =
      unpack(call('HMGET', staged, 'state', 'rows', 'alone', 'full', 'of', 'void', 'fails'))
    states[staged] = state
    facts[staged] = {rows = rows, alone = alone, full = full, of = of, left = full or void or fails,
      ttl = rows and select(3, external.numbers(rows)) or tonumber(alone or nil)}
  end
  local at, state = tonumber(number) + 1, states[staged]
  local was = state and sub(state, at, at)
  -- If the commit has applied the chunk by its notes, a late copy of the staging call has staged it again
  -- after its ack.
  local again = state and of_commit and not acking and call('HEXISTS', progress, staged) == 1
  local of = facts[staged].of
  local others = of and of_commit and not acking and sub(progress, -#of) ~= of -- the key ends with the commit
  if not state or was >= to or again or others then
    -- A flight that goes again emits nothing in the shards that it has reached before.
    if not acking and facts[staged].left and not others and state and not find(state, '0', 1, true) then
      noted = noted + 1
    end
    return counters.add('duplicates', 1)
  end
  if acking and facts[staged].rows and not facts[staged].full then
    noted = noted + 1
    return
  end
  if not holds then
    lost = lost + 1
    return
  end
  local chunk = {staged = staged, number = number, at = at, left = left, first = first, many = many}
  chunk.singles = {unpack(ARGV, slab, slab + ones - 1)}
  chunk.forgotten = acking and was == '0' -- it was published: the store has lost then that it was applied
  chunks[#chunks + 1] = chunk
end

-- Reads the staged data; returns true if it is whole. Raises if a part is missing, or ends in the middle.
local function read(chunk)
  local number, pairs_of, from = chunk.number, 0, 1
  local parts = call('HMGET', chunk.staged, 'counts:' .. number, 'indexes:' .. number,
    'deltas:' .. number, 'ones:' .. number, 'lengths:' .. number, 'vectors:' .. number, 'trees:' .. number,
    'tuples:' .. number)
  for k = 1, #parts do parts[k] = parts[k] or '' end -- what is empty is not stored
  local counts, indexes, deltas, ones, lengths, packed, trees, tuples = unpack(parts)
  for k = 1, #counts / 2 do pairs_of = pairs_of + unpack_from('<I2', counts, k * 2 - 1) end
  local pieces = {}
  for k = 1, #lengths / 2 do -- one for each slab of the dense part
    local bytes = unpack_from('<I2', lengths, k * 2 - 1) * 8
    pieces[k] = sub(packed, from, from + bytes - 1)
    from = from + bytes
  end
  chunk.counts, chunk.indexes, chunk.deltas, chunk.ones, chunk.pieces = counts, indexes, deltas, ones, pieces
  chunk.sparse, chunk.trees, chunk.tuples = #counts / 2, trees, tonumber(tuples) or 0
  local own = facts[chunk.staged]
  if own.rows and not own.ttl then return false end
  return chunk.at <= #states[chunk.staged] and #indexes == 2 * pairs_of and #deltas == 8 * pairs_of
    and from == #packed + 1 and #pieces == chunk.many - chunk.sparse and #ones == 8 * #chunk.singles
end

-- The names of a chunk's slabs: of its slabs of many, and of all slabs.
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
  -- The trees that are not acked: the commit has failed them itself, or leaves them out.
  -- found: the failed trees, to which the others are added. Slab -> packed index -> true. Bounded: by the
  -- trees of a chunk.
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

  -- Removes the words for such trees from all parts of a chunk. many: its slabs of many.
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
      if own == ALL or #hit == #pieces[k] / 8 then
        pieces[k] = words.none(#pieces[k] / 8)
      else
        table.sort(hit)
        pieces[k] = words.clear(pieces[k], hit)
      end
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
    local failed, dropped = of_commit and applied.failed(progress, all) or nil, {}
    if of_commit and applied.dropped(progress, all, dropped, ALL) then
      lost, failed = lost + 1, failed or {}
      for slab in pairs(dropped) do failed[slab] = ALL end -- all of the chunk's
    end
    if failed or chunk.left ~= '' then
      left_out.take(chunk, left_out.find(chunk.left, failed or {}, all), many)
      of_ones = nil
    end
  end
  -- An emit taken over from a tuple may come before the track of its tree, like any ack.
  update.waits = not acking or facts[chunk.staged].alone
  local dense, orphaned = chunk.first + chunk.sparse, update.orphaned
  update.sparse(chunk.first, chunk.counts, chunk.indexes, chunk.deltas, of_many)
  if chunk.many > chunk.sparse then
    local keys = {unpack(KEYS, dense, chunk.first + chunk.many - 1)}
    update.dense.update(keys, chunk.pieces, of_many, chunk.sparse)
  end
  if chunk.ones ~= '' then update.ones.update(chunk.singles, chunk.ones, of_ones) end
  if of_commit and not acking then
    local _, all = names_of(chunk)
    local own = facts[chunk.staged]
    local stay = math.max(tonumber(ARGV[7]), own.rows and 1000 * own.ttl or 0)
    applied.emitted(progress, all, update.orphaned > orphaned, stay > 0 and now + stay or 0)
  end
end

-- Notes that a chunk has reached the state.
local function reach(chunk)
  local state = states[chunk.staged]
  state = sub(state, 1, chunk.at - 1) .. to .. sub(state, chunk.at + 1)
  states[chunk.staged] = state
  local own = facts[chunk.staged]
  if state ~= rep('2', #state) then
    call('HSET', chunk.staged, 'state', state)
  elseif own.ttl then
    external.bury(chunk.staged, state, own.ttl)
  else
    call('DEL', chunk.staged)
  end
  if acking or find(state, '0', 1, true) then return end
  if of_commit then applied.note(progress, chunk.staged) end
  if own.rows then
    ended = true
    if external.emitted(chunk.staged, waits) ~= 'o' then noted = noted + 1 end
  end
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
for _, chunk in ipairs(chunks) do
  if chunk.forgotten then lost = lost + 1 else apply(chunk) end
  reach(chunk)
end
if ended then external.flush() end
update.flush()
marks.flush(marks_at)
counters.flush()
local numbers = {update.late, update.orphaned, update.unknown, lost, noted}
return table.concat(numbers, ' ') .. slabs.refusals
