-- Replaces the kept ids of roots by the same ids with rows that were read again from their source.
--
-- KEYS  1 kept  hash (streams/includes/kept.lua)
--       2 rows  string
-- ARGV  1 id
--       2 tail  of the rows that the caller has read: its last bytes, which differ after each change
--       3 rows  to be kept in their place
-- Returns 1, or 0 if they were settled or changed since: then nothing has changed. A late copy of the call
-- makes no key: what is no longer kept stays away.
local rows = KEYS[2]
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
if redis.call('GETRANGE', rows, -#ARGV[2], -1) ~= ARGV[2] then return 0 end
redis.call('SET', rows, ARGV[3])
return 1
