-- Answers a request, if it has no answer: whoever asks for it finds the answer for some time.
--
-- KEYS  1 calls      hash (lua/call.lua)
--       2 deadlines  sorted set (lua/call.lua)
--       3 answers    stream: requests that were answered
--       4 answer     string: "r" and the result, "f" and why it failed, "t" and why it is late
--       5 result     string (lua/give_results.lua)
-- ARGV  1 request
--       2 answer     as above; "r" alone: the result that is kept
--       3 ttl        seconds for which the answer is kept
--       4 most       requests in `answers`, about
--       5 none, 6 two  answers where there is no result, or where there are two
-- Returns whether it was answered now. The same again changes nothing.
local answer, found = ARGV[2], redis.call('GET', KEYS[5])
redis.call('UNLINK', KEYS[5])
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
if answer == 'r' then
  answer = not found and ARGV[5] or found == '' and ARGV[6] or 'r' .. found
end
redis.call('SET', KEYS[4], answer, 'EX', ARGV[3])
redis.call('XADD', KEYS[3], 'MAXLEN', '~', ARGV[4], '*', 'request', ARGV[1])
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('ZREM', KEYS[2], ARGV[1])
return 1
