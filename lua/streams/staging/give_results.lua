-- Has results that were staged for a commit take effect: each is kept for the answer to its request.
--
-- KEYS  1 given       hash: anchor -> result; what was staged
--       ... result    string, of each anchor; empty: there were two
-- ARGV  1 ttl         seconds for which a result is kept
--       ... anchor    of each result
-- Returns how many took effect now. The same again changes nothing: what took effect is not staged any more.
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
