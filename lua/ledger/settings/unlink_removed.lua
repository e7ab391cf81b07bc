-- Removes keys of a shard whose topology is being removed, and fields of its hash of slabs.
--
-- KEYS  1 removed  string (lua/ledger/includes/shard.lua)
--       2 slabs    hash
--       ... key    that goes
-- ARGV  ... field  of the hash, that goes
-- Returns 1, or 0 if the topology was made anew since: nothing has changed.
-- Bounded by the caller: at most 500 keys and fields a call.
if string.sub(redis.call('GET', KEYS[1]) or '', 1, 1) ~= 'r' then return 0 end
if #KEYS > 2 then redis.call('UNLINK', unpack(KEYS, 3)) end
if #ARGV > 0 then redis.call('HDEL', KEYS[2], unpack(ARGV)) end
return 1
