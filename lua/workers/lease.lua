-- Extends the lease of a worker, unless another worker has declared it dead.
--
-- KEYS  1 workers  hash: reader of a worker -> the end of its lease (ms), and the length of a lease (ms);
--                  0: it was declared dead; "!" and the reader -> its begun work; "?" and the reader -> the
--                  reason why that was not committed (lua/workers/note_uncommitted.lua)
-- ARGV  1 reader
--       2 lease    ms from now
--       3 ttl      seconds for which the workers are remembered
--       4 new      1: its first lease; otherwise only if it still counts as alive
--       5 begun    the work that it begins now; or empty
-- Returns 1, or 0 if it was declared dead, or is no longer known: nothing has changed.
local reader = ARGV[1]
local until_now = redis.call('HGET', KEYS[1], reader)
if until_now == '0' or (not until_now and ARGV[4] ~= '1') then return 0 end
local now = redis.call('TIME')
local till = now[1] * 1000 + math.floor(now[2] / 1000) + tonumber(ARGV[2])
redis.call('HSET', KEYS[1], reader, string.format('%.0f %s', till, ARGV[2]))
if ARGV[5] ~= '' then redis.call('HSET', KEYS[1], '!' .. reader, ARGV[5]) end
redis.call('EXPIRE', KEYS[1], ARGV[3])
return 1
