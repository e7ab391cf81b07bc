-- Notes the tuples that a process in plain Python has held for long, in place of its earlier note. The
-- process with the oldest note makes room for a new one.
--
-- KEYS  1 held     hash  process -> "ms number record": time of the note by the server's clock
-- ARGV  1 process  names it
--       2 number   of the note: a late copy of an earlier one changes nothing
--       3 record   of the tuples (acker/ledger/steps/held.py); empty for none
--       4 most     most processes
--       5 life     of the key, in ms
--       6 removals, 7 seen, 8 config  (store/includes/owned.lua)
-- Returns 1; 0 for a late copy, and where the topology is gone. An error ACKER LATE if it was removed since.
--- @include "store/includes/owned"
local refused = removed_since(ARGV[6], ARGV[7])
if refused then return refused end
if redis.call('EXISTS', ARGV[8]) == 0 then return 0 end
local instant = redis.call('TIME')
local now = instant[1] * 1000 + math.floor(instant[2] / 1000)
local noted = redis.call('HGET', KEYS[1], ARGV[1])
if noted then
  local number = string.match(noted, '^%d+ (%d+) ')
  if number and tonumber(number) >= tonumber(ARGV[2]) then return 0 end
elseif redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[4]) then
  local known, oldest, at = redis.call('HGETALL', KEYS[1]), nil, nil
  for k = 1, #known, 2 do -- bounded: by the most processes
    local ms = tonumber(string.match(known[k + 1], '^%d+') or 0)
    if not at or ms < at then oldest, at = known[k], ms end
  end
  redis.call('HDEL', KEYS[1], oldest)
end
redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f', now) .. ' ' .. ARGV[2] .. ' ' .. ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[5])
return 1
