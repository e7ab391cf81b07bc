-- Notes the acks of each step in each slab, with their time and batch (marks), and exact counts of each step:
-- tuples, trees, and the ages of the trees.
-- @needs shard, outcomes
--
-- KEYS, five of them:
--   step_counts  hash  counts of each step in this shard. Fields begin with its number (text): "<n> tuples",
--                      "<n> failed" (trees), "<n> seen" (ms), and "<n> <bucket>" of the ages of trees when it
--                      acked their tuples -> trees (buckets of LATENCY)
--   marks        hash  four of them. Marks of a rotation stand in the hash of its number modulo 4, and go
--                      when the next rotation takes the place (rotate.lua): later than their slab, unless the
--                      slab was reset. Without rotations they go by the time to live. The field is the step's
--                      number (u32) and the slab; the value is the time (ms, u64) and the batch (u32)
-- `by` is the acking step: its number (u32) and the batch (u32; all ones for none); '' for an unknown step:
-- nothing is noted then.
-- Slabs of one have no marks: a mark takes many times the bytes of such a tree.
-- Values that cannot be written are left out, because they are not worth ending a call in the middle.
-- trees: their numbers, by the begins of their slabs' headers.
local marks = {KEYS = 5, TTL = 30 * 86400, tuples = 0, trees = {}}

-- Adds trees of slabs to the trees of headers that begin alike, and returns the headers; counts has their
-- number for each slab (u16). Parsing each header would cost more than the ack, if slabs were tracked one by
-- one.
local function by_header(names, counts, found)
  if #names == 0 then return nil end
  local headers = call('HMGET', SLABS, unpack(names))
  for k = 1, #names do
    local header = headers[k]
    if header and #header == HEADER_BYTES + 8 then
      local fixed, n = sub(header, 1, HEADER_BYTES), 1
      if counts then
        local low, high = byte(counts, 2 * k - 1, 2 * k)
        n = low + 256 * high
      end
      found[fixed] = (found[fixed] or 0) + n
    end
  end
  return headers
end

-- Notes tuples that `by` acks, of slabs of many and of one; `trees` has the number of trees of each slab of
-- many (u16). flush() writes the counts. keys: the place of the five keys. Returns the headers of both kinds
-- of slabs, false if there is none; nil if they were not read. Bounded by the caller: at most 1,000 slabs.
function marks.acked(keys, by, tuples, many, trees, ones)
  if by == '' then return end
  local number, value, fields, m = sub(by, 1, 4), pack('<I8', now) .. sub(by, 5), {}, #many
  for k = 1, m do
    fields[2 * k - 1], fields[2 * k] = number .. many[k], value
  end
  if m > 0 then
    local hash = KEYS[keys + 1 + rotations % 4]
    redis.pcall('HSET', hash, unpack(fields))
    call('EXPIRE', hash, marks.TTL, 'NX')
  end
  marks.by, marks.tuples = by, marks.tuples + tuples
  return by_header(many, trees, marks.trees), by_header(ones, nil, marks.trees)
end

-- Writes the counts of acked().
function marks.flush(keys)
  if not marks.by then return end
  local step, buckets = unpack_from('<I4', marks.by), {}
  for fixed, n in pairs(marks.trees) do
    local kind, spout, count, _, tracked_at = unpack_from(HEADER, fixed)
    if slabs.is_tracked(kind, spout, count) then
      local bucket = outcomes.latency_bucket(math.max(0, now - tracked_at))
      buckets[bucket] = (buckets[bucket] or 0) + n
    end
  end
  for bucket, n in pairs(buckets) do redis.pcall('HINCRBY', KEYS[keys], step .. ' ' .. bucket, n) end
  if marks.tuples > 0 then redis.pcall('HINCRBY', KEYS[keys], step .. ' tuples', marks.tuples) end
  redis.pcall('HSET', KEYS[keys], step .. ' seen', now)
end

-- Trees that `by` fails.
function marks.failed(steps, by, trees)
  if by == '' then return end
  local step = unpack_from('<I4', by)
  if trees > 0 then redis.pcall('HINCRBY', steps, step .. ' failed', trees) end
  redis.pcall('HSET', steps, step .. ' seen', now)
end
