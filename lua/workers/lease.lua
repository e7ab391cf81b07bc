-- Notes until when a worker counts as alive, unless another one has taken it for dead.
--
-- KEYS  1 workers  hash: reader of a worker -> until when it counts as alive (ms), and for how long it does
--                  after each sign of life (ms); 0: it was taken for dead;
--                  "!" and the reader -> what it has begun; "?" and the reader -> why that was not
--                  committed (lua/workers/note_uncommitted.lua)
-- ARGV  1 reader
--       2 lease    ms from now
--       3 ttl      seconds for which the workers are remembered
--       4 new      1: its first; else only where it counts as alive still
--       5 begun    what it begins now; or empty
-- Returns 1, or 0 where it was taken for dead, or is not known any more: nothing has changed.
local reader = ARGV[1]
local until_now = redis.call('HGET', KEYS[1], reader)
if until_now == '0' or (not until_now and ARGV[4] ~= '1') then return 0 end
local now = redis.call('TIME')
local till = now[1] * 1000 + math.floor(now[2] / 1000) + tonumber(ARGV[2])
redis.call('HSET', KEYS[1], reader, string.format('%.0f %s', till, ARGV[2]))
if ARGV[5] ~= '' then redis.call('HSET', KEYS[1], '!' .. reader, ARGV[5]) end
redis.call('EXPIRE', KEYS[1], ARGV[3])
return 1
