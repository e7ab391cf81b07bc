-- Makes the reading of a stream fair: from now on its rows go into lanes by the volume of their keys, and a
-- subscription serves the lanes in turn.
--
-- KEYS  1 subscriptions  hash (streams/includes/streams.lua)
--       2 removals       string (store/includes/late.lua)
-- ARGV  1 column         of the key
--       2 slot           the subscription's number; or empty: only for writers
--       3 removals       as the caller has read it, or empty
--       4 until          ms of the server's clock
-- Returns nil; otherwise the present column of fair reading, and nothing has changed. An error if the
-- subscription's cursor cannot be read, and ACKER LATE if the stream was removed since, or after `until`.
--- @include "store/includes/late"
local found, lanes = redis.call('HGET', KEYS[1], 'fair'), 'lanes:' .. ARGV[2]
if found and found ~= ARGV[1] then return found end
local refused = late(KEYS[2], ARGV[3], ARGV[4])
if refused then return refused end
local slot = ARGV[2] ~= '' and redis.call('HEXISTS', KEYS[1], 'slot:' .. ARGV[2]) == 1
if slot and redis.call('HEXISTS', KEYS[1], lanes) == 0 then
  local cursor = redis.call('HGET', KEYS[1], 'cursor:' .. ARGV[2]) or ''
  if not string.match(cursor, '^%d+%-%d+$') then
    return redis.error_reply('UNREADABLE how far subscription number ' .. ARGV[2] .. ' has read')
  end
  redis.call('HSET', KEYS[1], lanes, string.rep(cursor .. ' ', 4) .. '0')
end
if not found then redis.call('HSET', KEYS[1], 'fair', ARGV[1]) end
return false
