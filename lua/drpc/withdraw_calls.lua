-- Takes calls of a function from their caller, which does not know if their rows are written: from now on
-- they are not (lua/drpc/check_caller.lua), and it begins no other. Or forgets them.
--
-- KEYS  1 calls      hash (begin_call.lua); a call that was taken from its caller has "-" before the caller
--       2 deadlines  sorted set (lua/drpc/begin_call.lua)
--       3 withdrawn  string: calls were taken from this caller
-- ARGV  1 caller
--       2 forget     0: takes them; 1: forgets them, so that they can begin anew
--       3 ttl        seconds for which `withdrawn` is kept: longer than a begin counts (begin_call.lua)
--       ... request
-- Returns the requests that belong to that caller, or did before.
-- Bounded by the caller: at most 1,024 requests a call.
local found = {}
redis.call('SET', KEYS[3], 1, 'EX', ARGV[3])
for k = 4, #ARGV do
  local request = ARGV[k]
  local known = redis.call('HGET', KEYS[1], request)
  local caller, rest = string.match(known or '', '^%-?(%S*)(.*)$')
  if known and caller == ARGV[1] then
    found[#found + 1] = request
    if ARGV[2] == '1' then
      redis.call('HDEL', KEYS[1], request)
      redis.call('ZREM', KEYS[2], request)
    else
      redis.call('HSET', KEYS[1], request, '-' .. caller .. rest)
    end
  end
end
return found
