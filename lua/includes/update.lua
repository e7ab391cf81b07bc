-- XORs deltas into the ack vectors of slabs, and finds the trees that this completes.
-- @needs shard, outcomes, waiting
local update = {late = 0, orphaned = 0}

-- A slab whose last tree is finished keeps its header and message ids until its outcomes are confirmed.
local function finish_slab(key, slab, facts)
  call('DEL', key)
  slabs.leave_bucket(slab, facts.rotation)
end

-- XORs strings of one length.
local function xor(a, b)
  call('MSET', SCRATCH, a, OPERAND, b)
  call('BITOP', 'XOR', SCRATCH, SCRATCH, OPERAND)
  update.scratch = true
  return call('GET', SCRATCH)
end

-- The items of a packed string, each of `size` bytes: 'I2' gives numbers, 'c8' words. A hundred are taken out
-- by one call, which is what takes the time.
local function items(packed, format, size)
  local found, n = {}, #packed / size
  for first = 0, n - 1, 100 do
    local some = math.min(100, n - first)
    local piece = {unpack_from('<' .. rep(format, some), packed, first * size + 1)}
    for i = 1, some do found[first + i] = piece[i] end
  end
  return found
end

-- A delta for a tree that has no word, or a word of zero: it is finished, unknown, or waiting; only the
-- header tells. Returns whether it waits, so that its word is the delta now.
local function may_wait(slab, limit)
  local header = call('HGET', SLABS, slab) or waiting.open(slab, limit)
  if not header then
    update.orphaned = update.orphaned + 1
  elseif slabs.facts(header).tracked then
    update.late = update.late + 1
  else
    return true
  end
end

-- The n-th of `counts` (u16) says how many of `indexes` (u16) and `deltas` (words) are for the n-th key from
-- `first` on. Touches only the words named: the cost does not depend on the size of the slabs.
-- Bounded by the caller: at most 1,000 words a call.
function update.sparse(first, counts, indexes, deltas, limit)
  if deltas == '' then return end
  local keys, zero, values, n = KEYS, ZERO, {}, 0
  local each, at = items(counts, 'I2', 2), items(indexes, 'I2', 2)
  for k = 1, #each do
    local key = keys[first + k - 1]
    for _ = 1, each[k] do
      n = n + 1
      local start = at[n] * 8
      local value = call('GETRANGE', key, start, start + 7)
      values[n] = value == '' and zero or value
    end
  end
  local new = items(xor(table.concat(values), deltas), 'c8', 8)
  n = 0
  for k = 1, #each do
    local key = keys[first + k - 1]
    local completed, done
    for _ = 1, each[k] do
      n = n + 1
      if values[n] ~= zero or may_wait(slabs.name(key), limit) then
        local word = new[n]
        call('SETRANGE', key, at[n] * 8, word)
        if word == zero then
          if not completed then completed, done = {}, 0 end
          done = done + 1
          completed[done] = at[n]
        end
      end
    end
    if completed then
      local slab = slabs.name(key)
      local facts = slabs.facts(call('HGET', SLABS, slab))
      if facts.tracked then
        outcomes.add('acked', '', slab, facts, completed, done)
        if call('BITPOS', key, 1) == -1 then finish_slab(key, slab, facts) end
      end
    end
  end
end

-- XORs a vector in place and returns what it is now.
local function xor_vector(key, delta)
  call('SET', SCRATCH, delta)
  call('BITOP', 'XOR', key, key, SCRATCH)
  update.scratch = true
  return call('GET', key)
end

-- The members of `zeros` that are not in `finished`; both ascend.
local function completed_now(finished, zeros)
  local completed, c, i = {}, 0, 1
  for z = 1, #zeros do
    if finished[i] == zeros[z] then
      i = i + 1
    else
      c = c + 1
      completed[c] = zeros[z]
    end
  end
  return completed, c
end

-- Takes out of a delta what is for trees of a tracked slab that are finished or never were: it is late.
local function without_late(delta, length, finished)
  if #delta > length then
    local _, zeros = words.zeros(sub(delta, length + 1))
    update.late = update.late + (#delta - length) / 8 - zeros
    delta = sub(delta, 1, length)
  end
  local hit = {}
  for f = 1, #finished do
    local word = finished[f] * 8
    if word < #delta and sub(delta, word + 1, word + 8) ~= ZERO then hit[#hit + 1] = finished[f] end
  end
  if #hit == 0 then return delta end
  update.late = update.late + #hit
  return words.clear(delta, hit)
end

local function dense_tracked(key, slab, facts, value, delta)
  local count = facts.count
  local finished, f = words.zeros(value or words.none(count))
  delta = without_late(delta, count * 8, finished)
  if f == count then return end
  if value == delta then -- completes the slab: no word to look for
    if f == 0 then
      outcomes.add('acked', '', slab, facts)
    else
      outcomes.add('acked', '', slab, facts, words.others(finished, count))
    end
    finish_slab(key, slab, facts)
    return
  end
  local zeros, z = words.zeros(xor_vector(key, delta))
  if z > f then outcomes.add('acked', '', slab, facts, completed_now(finished, zeros)) end
  if z == count then finish_slab(key, slab, facts) end
end

-- Dense: `deltas[k]` is a vector for `keys[k]`, from its tree 0 on; a zero word changes nothing. The work is
-- the server's own (BITOP, comparison of strings), not Lua's.
-- Bounded by the caller: at most 16,384 words and 51 slabs a call, for each may be of 4,096 trees.
function update.dense(keys, deltas, limit)
  if #keys == 0 then return end
  local names = {}
  for k = 1, #keys do names[k] = slabs.name(keys[k]) end
  local values = call('MGET', unpack(keys))
  local headers = call('HMGET', SLABS, unpack(names))
  for k = 1, #keys do
    local key, slab, value, delta = keys[k], names[k], values[k], deltas[k]
    local facts = headers[k] and slabs.facts(headers[k])
    if facts and facts.tracked then
      dense_tracked(key, slab, facts, value, delta)
    elseif facts or waiting.open(slab, limit) then
      if value then xor_vector(key, delta) else call('SET', key, delta) end
    else
      local _, zeros = words.zeros(delta)
      update.orphaned = update.orphaned + #delta / 8 - zeros
    end
  end
end

-- Slabs of one whose tree is complete. Those that were tracked by one call have headers that begin alike.
local function complete_ones(names)
  local headers = table.concat(call('HMGET', SLABS, unpack(names)))
  if #headers ~= 24 * #names then error({err = 'UNREADABLE the record of a slab of one'}) end
  local begins, lists = items(headers, 'c16xxxxxxxx', 24), {} -- without the digest
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
  call('HDEL', ONES, unpack(names))
  for fixed, complete in pairs(lists) do
    local facts = slabs.facts(fixed)
    if facts.tracked then -- one that waits stays, with no word
      outcomes.add_slabs('acked', '', facts, complete)
      slabs.leave_together(complete, facts.rotation)
    end
  end
end

-- Slabs of one: the n-th word of `deltas` is for the one that the n-th argument from `first` on names. All
-- are XORed at once. Bounded by the caller: at most 1,000 a call.
function update.ones(first, deltas, limit)
  local n = #deltas / 8
  if n == 0 then return end
  local names = {unpack(ARGV, first, first + n - 1)}
  local values, zero = call('HMGET', ONES, unpack(names)), ZERO
  local all, old = pcall(table.concat, values) -- it raises where there is no word
  if not all then
    for k = 1, n do values[k] = values[k] or zero end
    old = table.concat(values)
  elseif old == deltas then -- as when all are acked by one call
    return complete_ones(names)
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
      if values[k] ~= zero or may_wait(names[k], limit) then
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
  if g > 0 then complete_ones(gone) end
end

function update.flush()
  if update.scratch then call('DEL', SCRATCH, OPERAND) end
  counters.add('late', update.late)
  counters.add('orphaned', update.orphaned)
  outcomes.flush()
  slabs.flush()
end
