-- Applies the staged results of a commit: each is kept for the answer to its request.
--
-- KEYS  1 given       hash: anchor -> result; the staged results
--       ... result    string, of each anchor; empty: there are two results
-- ARGV  1 ttl         seconds for which a result is kept
--       ... anchor    of each result
-- Returns the number of results applied now. The same again changes nothing: applied results are not staged.
-- Bounded by the caller: at most 256 results, or 4 MiB and one more, a call.
--- @chained true
local n = 0
for k = 2, #KEYS do
  local found = redis.call('HGET', KEYS[1], ARGV[k])
  if found then
    if redis.call('EXISTS', KEYS[k]) == 1 then found = '' end
    redis.call('SET', KEYS[k], found, 'EX', ARGV[1])
    redis.call('HDEL', KEYS[1], ARGV[k])
    n = n + 1
  end
end
return n
