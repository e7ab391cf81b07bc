-- Records effects of a step, so that rows of the same key are known for a while
-- (acker/streams/staging/effects.py).
--
-- KEYS  1 count       string: number of effects of the generation in this shard
--       2 effects     set of digests: one partition of the generation
--       3 latest      hash: number  of the writer's last commit with effects
--                           digest  recorded by that commit -> ''
-- ARGV  1 period      ms that a generation takes; an effect is remembered for two to three of them
--       2 generation  generation by the caller: server time in ms / period, rounded down
--       3 number      of the commit
--       ... digest    16 bytes
-- Returns the number of new effects; -1 if it is another generation, and nothing has changed.
-- Bounded by the caller: at most 1,000 digests a call.
--- @chained reply >= 0
local instant = redis.call('TIME')
local now, period = instant[1] * 1000 + math.floor(instant[2] / 1000), tonumber(ARGV[1])
local generation = math.floor(now / period)
if generation ~= tonumber(ARGV[2]) then return -1 end
local added = redis.call('SADD', KEYS[2], unpack(ARGV, 4))
redis.call('INCRBY', KEYS[1], added)
-- The third generation from now takes the same names: by then they are free.
local free = string.format('%.0f', (generation + 3) * period - 1)
redis.call('PEXPIREAT', KEYS[1], free)
redis.call('PEXPIREAT', KEYS[2], free)
-- The batch that runs again does not know its commit where another node has lost that: these are its own.
local number, noted = tonumber(ARGV[3]), tonumber(redis.call('HGET', KEYS[3], 'number')) or -1
if number > noted then
  redis.call('UNLINK', KEYS[3])
  redis.call('HSET', KEYS[3], 'number', ARGV[3])
end
if number >= noted then -- no late copy
  local fields = {}
  for n = 4, #ARGV do -- bounded: as the call
    fields[2 * n - 7] = ARGV[n]
    fields[2 * n - 6] = ''
  end
  redis.call('HSET', KEYS[3], unpack(fields))
  redis.call('PEXPIREAT', KEYS[3], free)
end
return added
