-- Begins a call of a function, if there is room for it and no caller has begun it before.
--
-- KEYS  1 calls      hash: request -> its caller and the time of its begin (ms), as "<caller> <when>"
--       2 deadlines  sorted set: request -> its deadline (ms)
--       3 answer     string: of this request
--       4 removals   string: how often what the function keeps was removed lately
--       5 withdrawn  string: of this caller (withdraw_calls.lua)
-- ARGV  1 request
--       2 caller     random: identifies a repeated call
--       3 time       ms until the deadline
--       4 most       most unanswered calls
--       5 removals   as the caller has read it, or empty
--       6 until      ms of the server's clock; sooner than an answer is forgotten
-- The hash and the set live for some time after the last deadline: a late copy of the call leaves nothing for
-- ever where its function was removed.
-- Returns {'new'}, {'pending'} if another caller has begun it, {'full'}, or {'answered', answer}. An error
-- ACKER LATE, and nothing has changed, if the function was removed since, if the caller lost calls, or
-- after `until`: a late copy of the call begins no call that was answered or forgotten before.
--- @include "store/includes/late"
local LEFT = 30 * 86400 -- seconds
local answer = redis.call('GET', KEYS[3])
if answer then return {'answered', answer} end
local known = redis.call('HGET', KEYS[1], ARGV[1])
if known then return {string.match(known, '^%S*') == ARGV[2] and 'new' or 'pending'} end
if redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[4]) then return {'full'} end
local refused = late(KEYS[4], ARGV[5], ARGV[6])
if refused then return refused end
if redis.call('EXISTS', KEYS[5]) == 1 then return redis.error_reply('ACKER LATE') end
local instant = redis.call('TIME')
local now = instant[1] * 1000 + math.floor(instant[2] / 1000)
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] .. ' ' .. string.format('%.0f', now))
redis.call('ZADD', KEYS[2], now + tonumber(ARGV[3]), ARGV[1])
local left = math.ceil(tonumber(ARGV[3]) / 1000) + LEFT
for k = 1, 2 do
  if redis.call('TTL', KEYS[k]) < left then redis.call('EXPIRE', KEYS[k], left) end
end
return {'new'}
