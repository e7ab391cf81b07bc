-- Stages a segment's vectors for one shard: nothing is applied to any tree yet.
--
-- KEYS  1 staged  hash  state    one digit for each chunk: 0 staged, 1 applied, 2 acked
--                       layout   for each chunk its number of slabs (u16)
--                       slabs    the names of the chunks' slabs, 8 bytes each
--                       words    their number of words altogether
--                       counts:n, indexes:n, deltas:n, ones:n, vectors:n   the chunk (update.lua); what is
--                       empty is missing;
--                       tuples:n, trees:n   its number of tuples, and of trees of each slab of its dense
--                       part (u16)
--                       lengths:n   number of words of `vectors` of each slab of the dense part (u16)
--                       traced   traced trees, and the number of tuples of each
--                       tracked:<slab>, failed:<call>   completed work (track.lua, fail.lua)
--                       Or rows: trees to be failed (acker/streams/staging/staging.py);
--                       failed:<call>
-- ARGV  1 ttl     seconds after which uncommitted data is gone
--       ... field, value  of the hash
-- Returns 1, or 0 if the id is staged already: a late copy of the call changes nothing.
--- @chained true
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
-- Lua unpacks up to 8,000 values; bounded by the caller: a segment has some megabytes of vectors.
for first = 2, #ARGV, 1000 do
  redis.call('HSET', KEYS[1], unpack(ARGV, first, math.min(first + 999, #ARGV)))
end
redis.call('EXPIRE', KEYS[1], ARGV[1])
return 1
