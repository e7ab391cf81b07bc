-- Stages a segment's vectors for one shard: nothing is applied to any tree yet.
--
-- KEYS  1 staged  hash  state    one digit for each chunk: 0 staged, 1 applied, 2 acked
--                       layout   for each chunk how many slabs it has (u16)
--                       slabs    the names of the chunks' slabs, 8 bytes each
--                       words    how many words they have altogether
--                       counts:n, indexes:n, deltas:n, ones:n, vectors:n   the chunk (update.lua);
--                       tuples:n, trees:n   how many tuples it has, and trees of each slab of its dense
--                       part (u16)
--                       lengths:n   how many words of `vectors` each slab of the dense part has (u16)
--                       traced   trees that are traced, and how many tuples each has
--                       tracked:<slab>, failed:<call>   what was done (track.lua, fail.lua)
--                       Or rows: trees that are to be failed (acker/streams/staging/staging.py);
--                       failed:<call>
-- ARGV  1 ttl     seconds after which what nobody commits is gone
--       ... field, value  of the hash
-- Returns 1, or 0 where the token is staged already: a copy of the call that comes late changes nothing.
--- @chained true
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
-- Lua unpacks up to 8,000 values; bounded by the caller: a segment has some megabytes of vectors.
for first = 2, #ARGV, 1000 do
  redis.call('HSET', KEYS[1], unpack(ARGV, first, math.min(first + 999, #ARGV)))
end
redis.call('EXPIRE', KEYS[1], ARGV[1])
return 1
