-- Pauses a spout for the rows that it keeps, or ends its pause there.
--
-- KEYS  1 paused    string: the record of its pause (acker/ledger/settings/pauses.py), or "resumed" and a
--                   random number after a pause
--       2 removals  string (store/includes/late.lua)
-- ARGV  1 found     `paused` as the caller has read it, or empty
--       2 value     its new value
--       3 ttl       seconds for which that is kept; 0 for ever
--       4 removals  as the caller has read it, or empty
--       5 until     ms of the server's clock
-- Returns 1, or 0 if another call has changed it meanwhile: nothing has changed. An error ACKER LATE, and
-- nothing has changed, if the spout was removed since, or after `until`. So no late copy of the call pauses
-- a spout again.
--- @include "store/includes/late"
local call = redis.call
local present = call('GET', KEYS[1]) or ''
if present == ARGV[2] then return 1 end
local refused = late(KEYS[2], ARGV[4], ARGV[5])
if refused then return refused end
if present ~= ARGV[1] then return 0 end
if ARGV[3] == '0' then call('SET', KEYS[1], ARGV[2]) else call('SET', KEYS[1], ARGV[2], 'EX', ARGV[3]) end
return 1
