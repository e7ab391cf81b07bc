-- Ends the removal of a topology: its configuration goes, and all that lies beside it, at once.
--
-- KEYS  1 config    hash
--       2 removals  string (open_topology.lua)
--       ... key     that goes with it
-- ARGV  1 epoch     of the topology (read_epoch.lua): a topology that was made anew since has another one
--       2 ttl       seconds for which `removals` is kept
-- Returns 1, or 0 if the topology is not there, or was made anew: nothing has changed.
--- @include "store/includes/removed"
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return 0 end
note_removal(KEYS[2], ARGV[2], ARGV[1])
redis.call('UNLINK', KEYS[1], unpack(KEYS, 3))
return 1
