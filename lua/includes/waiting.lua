-- Messages that come before their tree is tracked wait, ownerless, for its track or for the third tick.
local waiting = {}

-- Makes a waiting slab in the nursery and returns its header, or nil where the shard holds `limit` already:
-- what can not wait is counted as orphaned by the caller, and the tree will expire.
function waiting.open(slab, limit)
  waiting.n = waiting.n or tonumber(call('HGET', COUNTERS, 'waiting') or 0)
  if waiting.n >= limit then return nil end
  waiting.n = waiting.n + 1
  counters.add('waiting', 1)
  local header = slabs.header(WAITING, 0, 0, now, ZERO)
  call('HSET', SLABS, slab, header)
  call('SADD', BUCKETS[rotations % 3], slab)
  return header
end

-- The failures that wait for a slab's track, as index -> reason, and their number; nil where they can not
-- be
-- read.
function waiting.failures(slab)
  local found, n, at = {}, 0, 1
  local packed = call('HGET', FAILURES, slab) or ''
  while at <= #packed do -- at most one record for each of 4,096 trees
    if at + 3 > #packed then return nil end
    local index, length = unpack_from('<I2I2', packed, at)
    if at + 3 + length > #packed then return nil end
    found[index] = sub(packed, at + 4, at + 3 + length)
    n = n + 1
    at = at + 4 + length
  end
  return found, n, packed
end

-- How many trees from index `first` on something waits for: a value, a failure, or both.
function waiting.lost(vector, failures, first)
  local n = 0
  for index = first, #vector / 8 - 1 do -- at most 4,096 words
    if sub(vector, index * 8 + 1, index * 8 + 8) ~= ZERO and not failures[index] then n = n + 1 end
  end
  for index in pairs(failures) do
    if index >= first then n = n + 1 end
  end
  return n
end
