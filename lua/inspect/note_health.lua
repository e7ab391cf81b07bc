-- Writes thresholds of a topology, and since when it has troubles; nothing where the topology is gone, which
-- would leave a key that nobody removes.
--
-- KEYS  1 config    of the topology
--       2 health    hash (acker/inspect/topology/health.py)
-- ARGV  1 set       of how many fields the value is set
--       2 noted     of how many it is where they have none
--       ... field, value  that are set
--       ... field, value  that are noted
--       ... field         that goes
-- Returns 1, or 0 where the topology is gone.
-- Bounded by the caller: by the number of thresholds and rules.
local call, set, noted = redis.call, tonumber(ARGV[1]), tonumber(ARGV[2])
if call('EXISTS', KEYS[1]) == 0 then return 0 end
for k = 1, set + noted do
  local field, value = ARGV[1 + 2 * k], ARGV[2 + 2 * k]
  if k <= set then call('HSET', KEYS[2], field, value) else call('HSETNX', KEYS[2], field, value) end
end
for k = 3 + 2 * (set + noted), #ARGV do call('HDEL', KEYS[2], ARGV[k]) end
return 1
