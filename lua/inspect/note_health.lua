-- Writes thresholds of a topology, and the begins of its troubles. If the topology is gone, it writes
-- nothing, because nobody would remove the key.
--
-- KEYS  1 config    of the topology
--       2 health    hash (acker/inspect/topology/health.py)
-- ARGV  1 set       number of fields whose value is set
--       2 noted     number of fields whose value is set if they have none
--       ... field, value  that are set
--       ... field, value  that are noted
--       ... field         that goes
-- Returns 1, or 0 if the topology is gone.
-- Bounded by the caller: by the number of thresholds and rules.
local call, set, noted = redis.call, tonumber(ARGV[1]), tonumber(ARGV[2])
if call('EXISTS', KEYS[1]) == 0 then return 0 end
for k = 1, set + noted do
  local field, value = ARGV[1 + 2 * k], ARGV[2 + 2 * k]
  if k <= set then call('HSET', KEYS[2], field, value) else call('HSETNX', KEYS[2], field, value) end
end
for k = 3 + 2 * (set + noted), #ARGV do call('HDEL', KEYS[2], ARGV[k]) end
return 1
