-- Keeps the rows of roots until their trees are settled: from now on an outcome leads to its row.
--
-- KEYS  keys of streams/includes/kept.lua, then
--       1 rows      string: it has a time to live until it is kept
--       2 removals  string (store/includes/late.lua)
--       3 paused    string (lua/inspect/pause_kept.lua)
--       4 staged    string: the rows that were staged beside it, where it has their ids only; it goes
-- ARGV  1 id
--       2 record  of the roots
--       3 number  of rows
--       4 limit   most unsettled rows of this spout (max_spout_pending); 0 for none, and -1 for none and
--           during a pause, as of replays
--       5 trees   of a slab, the last may have fewer
--       6 slabs   8 bytes each
--       7 removals  as the caller has read it, or empty
--       8 until     ms of the server's clock; 0: the chain of its call ends late copies
-- Returns 1: kept now; 0: kept before, or settled since; -1: over the limit, nothing has changed; the record
-- of a pause: the spout is paused, nothing has changed. An error ACKER LATE, and nothing has changed, if the
-- spout was removed since, or after `until`.
-- Bounded by the caller: at most 1,000 slabs a call.
--- @chained type(reply) == 'number' and reply >= 0
--- @include "streams/includes/kept"
--- @include "store/includes/late"
local rows_key = KEYS[OWN]
local id, rows, limit = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[4])
local trees, names = tonumber(ARGV[5]), ARGV[6]
local refused = ARGV[8] ~= '0' and late(KEYS[OWN + 1], ARGV[7], ARGV[8])
if refused then return refused end
if call('HEXISTS', KEPT, id) == 1 or call('TTL', rows_key) < 0 then return 0 end
local paused = limit >= 0 and call('GET', KEYS[OWN + 2])
if paused and sub(paused, 1, 7) ~= 'resumed' then return paused end
if limit > 0 and (tonumber(call('HGET', COUNTS, 'pending') or 0) or limit) + rows > limit then return -1 end
call('PERSIST', rows_key)
if KEYS[OWN + 3] then call('UNLINK', KEYS[OWN + 3]) end
call('HSET', KEPT, id, ARGV[2])
local instant = call('TIME')
call('ZADD', TIMES, instant[1] * 1000 + math.floor(instant[2] / 1000), id)
local fields, left = {}, rows
for k = 0, #names / 8 - 1 do
  fields[2 * k + 1] = sub(names, 8 * k + 1, 8 * k + 8)
  fields[2 * k + 2] = struct.pack('<I4I2', k, math.min(trees, left)) .. id
  left = left - trees
end
call('HSET', SLABS, unpack(fields))
call('HSET', LEFT, id, #names / 8)
raise(COUNTS, 'pending', rows)
return 1
