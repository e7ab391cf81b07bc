-- Notes which step acks tuples: of which slabs, when and in which batch (marks); and for each step, exactly,
-- how many tuples and trees, and how old the trees were.
-- @needs shard, outcomes
--
-- KEYS, five of them:
--   step_counts  hash  what each step of the topology has done here. Fields begin with its number (text):
--                      "<n> tuples", "<n> failed" (trees), "<n> seen" (ms), and "<n> <bucket>" of the ages
--                      of trees when it acked tuples of theirs -> trees (buckets as of LATENCY)
--   marks        hash  four of them. What is marked at a rotation stands in that of its number modulo 4,
--                      and goes when the next rotation takes the place (rotate.lua): later than its slab,
--                      unless that was reset; without rotations, by its time to live. The field is the
--                      step's number (byte) and the slab; the value is when (ms, u64) and in which batch
--                      (u32)
-- `by` is who acks: the step's number (byte) and the batch (u32; all ones for none); '' for nobody that is
-- known: nothing is noted then.
-- Slabs of one have no marks: a mark takes many times what is kept of such a tree.
-- None of this is worth to end a call in the middle: what cannot be written is left out.
local marks = {KEYS = 5, TTL = 30 * 86400}

-- Tuples that `by` acks, of slabs of many and of one; `trees` says how many trees of each slab of many (u16).
-- keys: the place of the five keys. Bounded by the caller: at most 1,000 slabs.
function marks.acked(keys, by, tuples, many, trees, ones)
  if by == '' then return end
  local step, number, value = byte(by), sub(by, 1, 1), pack('<I8', now) .. sub(by, 2)
  local fields, m, ages = {}, #many, {}
  for k = 1, m do
    fields[2 * k - 1], fields[2 * k] = number .. many[k], value
  end
  local hash = KEYS[keys + 1 + rotations % 4]
  if m > 0 then
    redis.pcall('HSET', hash, unpack(fields))
    call('EXPIRE', hash, marks.TTL, 'NX')
  end
  local last, ms
  -- Adds n trees of a slab, which is mostly one that was tracked with the slab before it.
  local function count(header, n)
    local fixed = header and sub(header, 1, HEADER_BYTES)
    if fixed ~= last then
      local facts = header and slabs.facts(header)
      last, ms = fixed, facts and facts.tracked and facts.ms
    end
    if ms then ages[ms] = (ages[ms] or 0) + n end
  end
  if m > 0 then
    local headers = call('HMGET', SLABS, unpack(many))
    for k = 1, m do
      local low, high = byte(trees, 2 * k - 1, 2 * k)
      count(headers[k], low + 256 * high)
    end
  end
  if #ones > 0 then
    local headers = call('HMGET', SLABS, unpack(ones))
    for k = 1, #ones do count(headers[k], 1) end
  end
  local buckets = {}
  for age, n in pairs(ages) do
    local bucket = outcomes.latency_bucket(age)
    buckets[bucket] = (buckets[bucket] or 0) + n
  end
  for bucket, n in pairs(buckets) do redis.pcall('HINCRBY', KEYS[keys], step .. ' ' .. bucket, n) end
  if tuples > 0 then redis.pcall('HINCRBY', KEYS[keys], step .. ' tuples', tuples) end
  redis.pcall('HSET', KEYS[keys], step .. ' seen', now)
end

-- Trees that `by` fails.
function marks.failed(steps, by, trees)
  if by == '' then return end
  local step = tostring(byte(by))
  if trees > 0 then redis.pcall('HINCRBY', steps, step .. ' failed', trees) end
  redis.pcall('HSET', steps, step .. ' seen', now)
end
