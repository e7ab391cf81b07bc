-- Begins a call of a function: there is room for it, and nobody has begun it before.
--
-- KEYS  1 calls      hash: request -> who has begun it, and when (ms), as "<caller> <when>"
--       2 deadlines  sorted set: request -> until when it is to be answered (ms)
--       3 answer     string: of this request
-- ARGV  1 request
--       2 caller     random: so that the same again is known
--       3 time       ms until the deadline
--       4 most       calls without answer
-- Returns {'new'}, {'pending'} where another caller has begun it, {'full'}, or {'answered', answer}.
local answer = redis.call('GET', KEYS[3])
if answer then return {'answered', answer} end
local known = redis.call('HGET', KEYS[1], ARGV[1])
if known then return {string.match(known, '^%S*') == ARGV[2] and 'new' or 'pending'} end
if redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[4]) then return {'full'} end
local instant = redis.call('TIME')
local now = instant[1] * 1000 + math.floor(instant[2] / 1000)
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] .. ' ' .. string.format('%.0f', now))
redis.call('ZADD', KEYS[2], now + tonumber(ARGV[3]), ARGV[1])
return {'new'}
