-- Puts a slab into the bucket that expires last.
-- @needs shard
local nursery = {}

-- A slab that is there already stays unchanged. `header` and `facts` belong to the slab.
function nursery.enter(key, slab, header, facts)
  local rotation = facts.rotation
  if rotation == rotations then return end
  slabs.leave_bucket(slab, rotation)
  call('SADD', BUCKETS[rotations % 3], slab)
  call('HSET', SLABS, slab,
    slabs.header(facts.kind, facts.spout, facts.count, facts.tracked_at, sub(header, HEADER_BYTES + 1)))
  if facts.tracked then
    local _, zeros = words.zeros(vectors.get(key, slab))
    counters.add(slabs.bucket_counter(rotation), zeros - facts.count)
    counters.add(slabs.bucket_counter(rotations), facts.count - zeros)
  end
end
