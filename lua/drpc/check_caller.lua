-- Checks that all calls of a list still belong to a caller, and have no answer.
--
-- KEYS  1 calls    hash (lua/drpc/begin_call.lua)
-- ARGV  1 caller
--       ... request
-- Returns 1 or 0.
-- Bounded by the caller: at most 1,024 requests a call.
--- @chained reply == 1
for k = 2, #ARGV do
  local known = redis.call('HGET', KEYS[1], ARGV[k])
  if not known or string.match(known, '^%S*') ~= ARGV[1] then return 0 end
end
return 1
