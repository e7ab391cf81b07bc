-- XORs deltas into the ack vectors of slabs, and finds the trees that this completes.
-- @needs shard, outcomes, early, waiting, finished
local update = {late = 0, orphaned = 0, unknown = 0} -- unknown: trees that wait now and did not before
update.waits = true -- whether a slab that nobody knows of is one to come; else it is one that is forgotten

local FEW_WORDS = 4 -- they take less time than the four commands for many words

-- A slab whose last tree is finished keeps its header and message ids until its outcomes are confirmed.
local function finish_slab(key, slab, facts)
  vectors.drop(key, slab, facts.count)
  slabs.leave_bucket(slab, facts.rotation)
end

-- XORs strings of one length.
local function xor(a, b)
  if #a <= FEW_WORDS * 8 then return vectors.xor(a, b) end
  call('MSET', SCRATCH, a, OPERAND, b)
  call('BITOP', 'XOR', SCRATCH, SCRATCH, OPERAND)
  update.scratch = true
  return call('GET', SCRATCH)
end

-- The items of a packed string, each of `size` bytes: 'I2' gives numbers, 'c8' words. A hundred are taken
-- out by one call, which is what takes the time.
local function items(packed, format, size)
  local found, n = {}, #packed / size
  for first = 0, n - 1, 100 do
    local some = math.min(100, n - first)
    local piece = {unpack_from('<' .. rep(format, some), packed, first * size + 1)}
    for i = 1, some do found[first + i] = piece[i] end
  end
  return found
end

-- The facts of a slab, or of a slab that begins to wait now; false if its record cannot be read, nil if no
-- further slab may wait, or none is to. header: its header, if the call has read it before.
local function facts_of(slab, header)
  if header == nil then header = call('HGET', SLABS, slab) end
  header = header or update.waits and waiting.open(slab)
  if not header then return nil end
  local facts = slabs.facts(header)
  if not facts then slabs.refuse(slab) end
  return facts or false
end

-- Counts a delta for a finished tree, or for a tree without room to wait.
local function count_lost(facts)
  if facts or not update.waits then
    update.late = update.late + 1
  else
    update.orphaned = update.orphaned + 1
  end
end

-- The n-th of `counts` (u16) is the number of `indexes` (u16) and `deltas` (words) for the n-th key from
-- `first` on. Touches only the named words: the cost does not depend on the size of the slabs. A record is
-- read only for words that are zero, or become zero. If it cannot be read, the slab is passed over from there
-- on.
-- headers: of the slabs, if the call has read them before.
-- Bounded by the caller: at most 1,000 words a call.
function update.sparse(first, counts, indexes, deltas, headers)
  if deltas == '' then return end
  local keys, zero, values, torn, n = KEYS, ZERO, {}, {}, 0
  local each, at = items(counts, 'I2', 2), items(indexes, 'I2', 2)
  for k = 1, #each do
    local key = keys[first + k - 1]
    for _ = 1, each[k] do
      n = n + 1
      local start = at[n] * 8
      local value = call('GETRANGE', key, start, start + 7)
      if #value ~= 8 then
        if value ~= '' then torn[k] = true end
        value = zero
      end
      values[n] = value
    end
  end
  local new = items(xor(table.concat(values), deltas), 'c8', 8)
  n = 0
  for k = 1, #each do
    local key = keys[first + k - 1]
    local slab = slabs.name(key)
    local facts, completed, done, early_at, early_words
    if torn[k] then
      slabs.refuse(slab)
      facts = false
    end
    for _ = 1, each[k] do
      n = n + 1
      local word, anybodys = new[n], values[n] ~= zero
      if facts == nil and (word == zero or not anybodys) then
        facts = facts_of(slab, headers and headers[k])
      end
      local beyond = facts and facts.tracked and at[n] >= facts.count -- no tree's
      if word == zero and beyond then anybodys = false end
      if not anybodys and facts and not facts.tracked then
        early_at, early_words = early_at or {}, early_words or {}
        early_at[#early_at + 1], early_words[#early_words + 1] = at[n], word
      elseif facts ~= false and (anybodys or count_lost(facts)) then
        local ended = word == zero and facts and facts.tracked
        if not ended or facts.count > 1 then call('SETRANGE', key, at[n] * 8, word) end
        if ended then
          if not completed then completed, done = {}, 0 end
          done = done + 1
          completed[done] = at[n]
        end
      end
    end
    if early_at then
      local unknown, orphaned = waiting.add(key, slab, early_at, early_words)
      if unknown then
        update.unknown, update.orphaned = update.unknown + unknown, update.orphaned + orphaned
      else
        slabs.refuse(slab)
      end
    end
    if completed then
      outcomes.add('acked', '', slab, facts, completed, done)
      if done == facts.count or call('BITPOS', key, 1) == -1 then finish_slab(key, slab, facts) end
    end
  end
end

update.dense = lazy(function(dense)
  -- XORs a vector in place.
  local function xor_vector(key, delta)
    call('SET', SCRATCH, delta)
    call('BITOP', 'XOR', key, key, SCRATCH)
    update.scratch = true
  end

  -- A vector with a word of ones for each tree that its mask has; the mask is in OPERAND.
  local function with_mask(key, mask, value)
    if not mask then return value or call('GET', key) end
    call('BITOP', 'OR', SCRATCH, key, OPERAND)
    update.scratch = true
    return call('GET', SCRATCH)
  end

  -- The members of `zeros` that are not in `before`; both ascend.
  local function completed_now(before, zeros)
    if #before == 0 then return zeros, #zeros end
    local completed, c, i = {}, 0, 1
    for z = 1, #zeros do
      if before[i] == zeros[z] then
        i = i + 1
      else
        c = c + 1
        completed[c] = zeros[z]
      end
    end
    return completed, c
  end

  -- Removes from a delta the words for trees that a tracked slab lacks, or that are finished and listed: they
  -- are late.
  local function without_late(delta, length, listed)
    if #delta > length then
      update.late = update.late + words.count(sub(delta, length + 1))
      delta = sub(delta, 1, length)
    end
    local hit = {}
    for f = 1, #listed do
      local word = listed[f] * 8
      if word < #delta and sub(delta, word + 1, word + 8) ~= ZERO then hit[#hit + 1] = listed[f] end
    end
    if #hit == 0 then return delta end
    update.late = update.late + #hit
    return words.clear(delta, hit)
  end

  -- Removes late words from a vector again: words of trees of the mask, which were zero and must stay zero.
  local function undo_late(key, mask)
    call('BITOP', 'AND', SCRATCH, key, OPERAND)
    local bits = call('BITCOUNT', SCRATCH)
    if bits == 0 then return end
    update.late = update.late + finished.late(mask, bits)
    call('BITOP', 'XOR', key, key, SCRATCH)
  end

  -- `value` is the vector, or '' if there is a mask, because it need not be read then.
  local function dense_tracked(key, slab, facts, value, mask, delta)
    local count = facts.count
    if not value then -- all its trees are finished
      update.late = update.late + words.count(delta)
      return
    end
    if mask then call('SET', OPERAND, mask) end
    local before, f = words.zeros(with_mask(key, mask, value))
    delta = without_late(delta, count * 8, before)
    local complete, completed, c = value == delta, nil, count
    if not complete then
      xor_vector(key, delta)
      if mask then undo_late(key, mask) end
      complete = call('BITPOS', key, 1) == -1
    end
    if not complete then
      local zeros = words.zeros(with_mask(key, mask))
      completed, c = completed_now(before, zeros)
      finished.note(slab, mask, count, zeros)
    elseif mask then
      completed, c = completed_now(before, (words.zeros(mask)))
    elseif f > 0 then
      completed, c = words.others(before, count)
    end
    if c > 0 then outcomes.add('acked', '', slab, facts, completed, c) end
    if complete then finish_slab(key, slab, facts) end
  end

  -- The number of words of a delta for trees without a word.
  local function begun(value, delta)
    local zeros, z = words.zeros(value)
    local n = 0
    for i = 1, z do
      local at = zeros[i] * 8
      if at < #delta and sub(delta, at + 1, at + 8) ~= ZERO then n = n + 1 end
    end
    if #delta > #value then n = n + words.count(sub(delta, #value + 1)) end
    return n
  end

  -- A vector of deltas for a waiting slab, or for an unknown one, whose `facts` is nil.
  local function wait_for_track_dense(key, slab, facts, value, delta)
    local known
    if not facts and not update.waits then
      update.late = update.late + words.count(delta)
      return
    end
    if facts or waiting.open(slab) then
      known = waiting.room_for(key, slab, value or '', delta)
      if known == false and facts then return slabs.refuse(slab) end
    end
    if not known then
      update.orphaned = update.orphaned + words.count(delta)
      return
    end
    update.unknown = update.unknown + begun(known, delta)
    if known == '' then call('SET', key, delta) else xor_vector(key, delta) end
  end

  -- Dense: `deltas[k]` is a vector for `keys[k]`, from its tree 0 on; a zero word changes nothing. The work
  -- is the server's own (BITOP, comparison of strings), not Lua's.
  -- headers: of the slabs, behind `passed` others, if the call has read them before.
  -- Bounded by the caller: at most 16,384 words and 51 slabs a call, because each may have 4,096 trees.
  function dense.update(keys, deltas, headers, passed)
    local names = {}
    for k = 1, #keys do names[k] = slabs.name(keys[k]) end
    local masks = finished.masks(names)
    if headers then
      headers = {unpack(headers, passed + 1, passed + #keys)}
    else
      headers = call('HMGET', SLABS, unpack(names))
    end
    for k = 1, #keys do
      local key, slab, delta = keys[k], names[k], deltas[k]
      local facts, mask = headers[k] and slabs.facts(headers[k]), masks[k]
      if mask and not (facts and facts.tracked and #mask == facts.count * 8) then mask = false end
      local value, length = '', mask and call('STRLEN', key)
      if not mask then
        value = call('GET', key)
        length = #(value or '')
      elseif length == 0 then
        value = false
      end
      if facts and facts.tracked and (not value or length == facts.count * 8) then
        dense_tracked(key, slab, facts, value, mask, delta)
      elseif headers[k] and (not facts or facts.tracked) then
        slabs.refuse(slab)
      else
        wait_for_track_dense(key, slab, facts, value, delta)
      end
    end
  end
end)

update.ones = lazy(function(ones)
  -- The names and the headers of slabs of one with whole headers; the others are refused.
  local function with_headers(names, headers)
    local kept, whole, n = {}, {}, 0
    for k = 1, #names do
      if headers[k] and #headers[k] == HEADER_BYTES + 8 then
        n = n + 1
        kept[n], whole[n] = names[k], headers[k]
      else
        slabs.refuse(names[k])
      end
    end
    return kept, table.concat(whole)
  end

  -- The names that are not refused.
  local function without_refused(names)
    local kept = {}
    for k = 1, #names do
      if not slabs.refused[names[k]] then kept[#kept + 1] = names[k] end
    end
    return kept
  end

  -- Slabs of one whose tree is complete. Slabs that were tracked by one call have headers that begin alike.
  -- found: their headers, if the call has read them before.
  local function complete_ones(names, found)
    found = found or call('HMGET', SLABS, unpack(names))
    local all, headers = pcall(table.concat, found) -- it raises where there is no header
    if not all or #headers ~= (HEADER_BYTES + 8) * #names then names, headers = with_headers(names, found) end
    local begins, lists = items(headers, 'c' .. HEADER_BYTES .. 'xxxxxxxx', HEADER_BYTES + 8), {}
    local last, list, n
    for k = 1, #names do
      local fixed = begins[k]
      if fixed ~= last then
        list = lists[fixed] or {}
        lists[fixed], last, n = list, fixed, #list
      end
      n = n + 1
      list[n] = names[k]
    end
    for fixed, complete in pairs(lists) do
      local facts = slabs.facts_of(fixed)
      if not facts then
        for i = 1, #complete do slabs.refuse(complete[i]) end
      elseif facts.tracked then -- one that waits stays, with no word
        outcomes.add_slabs('acked', '', facts, complete)
        slabs.leave_together(complete, facts.rotation)
      end
    end
    if slabs.refusals ~= '' then names = without_refused(names) end
    if #names > 0 then call('HDEL', ONES, unpack(names)) end
  end

  -- Words of slabs of one before an XOR: zero if there is none, or if it cannot be read. Such a slab is
  -- refused.
  local function sound_words(names, values)
    for k = 1, #names do
      if values[k] and #values[k] ~= 8 then slabs.refuse(names[k]) end
      if not values[k] or #values[k] ~= 8 then values[k] = ZERO end
    end
    return table.concat(values)
  end

  -- True if a delta for a slab of one that has no word waits as its word. All bytes of it were counted
  -- already.
  local function one_may_wait(slab)
    if slabs.refused[slab] then return false end
    local facts = facts_of(slab)
    if facts and not facts.tracked then
      update.unknown = update.unknown + 1
      return true
    end
    if facts ~= false then count_lost(facts) end
  end

  -- Slabs of one: the n-th word of `deltas` is for the n-th of `names`. All are XORed at once.
  -- headers: of the slabs, if the call has read them before.
  -- Bounded by the caller: at most 1,000 a call.
  function ones.update(names, deltas, headers)
    local n = #deltas / 8
    local values, zero = call('HMGET', ONES, unpack(names)), ZERO
    local all, old = pcall(table.concat, values) -- it raises where there is no word
    if not all or #old ~= #deltas then
      all, old = false, sound_words(names, values)
    elseif old == deltas then -- as when all are acked by one call
      return complete_ones(names, headers)
    end
    local packed = xor(old, deltas)
    local new, stores, s, gone, g = items(packed, 'c8', 8), {}, 0, {}, 0
    if all and not find(packed, zero, 1, true) then
      for k = 1, n do
        stores[s + 1], stores[s + 2] = names[k], new[k]
        s = s + 2
      end
    else
      for k = 1, n do
        if values[k] ~= zero or one_may_wait(names[k]) then
          local word = new[k]
          if word == zero then
            g = g + 1
            gone[g] = names[k]
          else
            stores[s + 1], stores[s + 2] = names[k], word
            s = s + 2
          end
        end
      end
    end
    if s > 0 then call('HSET', ONES, unpack(stores)) end
    if g > 0 then complete_ones(gone, all and g == n and headers) end
  end
end)

function update.flush()
  if update.scratch then call('DEL', SCRATCH, OPERAND) end
  counters.add('late', update.late)
  counters.add('orphaned', update.orphaned)
  outcomes.flush()
  slabs.flush()
end
