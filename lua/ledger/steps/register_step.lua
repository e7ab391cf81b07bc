-- Registers a step of a topology. The least recently seen step makes room for a new one.
--
-- KEYS  1 steps    hash  field -> "us what": time of its last sign by the server's clock, and its description
-- ARGV  1 field    names the step and its query or process
--       2 what     JSON (acker/ledger/steps/step_registry.py)
--       3 most     most steps
--       4 config   key of the topology's configuration
--       5 removals, 6 seen  (store/includes/owned.lua)
-- Returns 1 for a new step, otherwise 0. An error ACKER LATE if the topology was removed since.
--- @include "store/includes/owned"
local refused = removed_since(ARGV[5], ARGV[6])
if refused then return refused end
local instant = redis.call('TIME')
local now = instant[1] * 1000000 + instant[2]
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 and redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[3]) then
  local known, oldest, at = redis.call('HGETALL', KEYS[1]), nil, nil
  for k = 1, #known, 2 do -- bounded: by what may be known
    local seen = tonumber(string.match(known[k + 1], '^%d+') or 0)
    if not at or seen < at then oldest, at = known[k], seen end
  end
  redis.call('HDEL', KEYS[1], oldest)
end
local new = redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f', now) .. ' ' .. ARGV[2])
leave(KEYS[1], ARGV[4])
return new
