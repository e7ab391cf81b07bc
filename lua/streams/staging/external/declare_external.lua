-- Has a stream be external: its rows are elsewhere. The first call gives it the key of its stamps.
--
-- KEYS  1 subscriptions  hash (streams/includes/streams.lua)
--       2 entries        stream
--       3 schema         string: only a managed stream has it
--       4 removals       string (store/includes/late.lua)
-- ARGV  1 key         64 hexadecimal digits, where there is none
--       2 lost_after  seconds, or empty: as it is, or the default
--       3 downtime    seconds, or empty
--       4 most        open segments that it may have, or empty
--       5 bytes       of the vectors of its open segments, at most, or empty
--       6 removals    as the caller has read it, or empty
--       7 until       ms of the server's clock
--       8 epoch       random, for a stream that has none
-- Returns the server's time (ms), the number of the key, that key, the one before it or '', lost_after,
-- downtime, most and bytes, '' where they are the default, the slots of its subscriptions, as "0,2", and its
-- epoch. An error ACKER MANAGED where rows were written to it, and ACKER LATE where it was removed since the
-- caller has read `removals`, or after `until`: a late copy of the call makes nothing anew.
--- @include "store/includes/late"
local call = redis.call
local instant = call('TIME')
local now = instant[1] * 1000 + math.floor(instant[2] / 1000)
local refused = late(KEYS[4], ARGV[6], ARGV[7])
if refused then return refused end
local kind = call('HGET', KEYS[1], 'external')
if not kind then
  local emitted = tonumber(call('HGET', KEYS[1], 'emitted') or 0) or 1
  if emitted > 0 or call('EXISTS', KEYS[2], KEYS[3]) > 0 or call('HEXISTS', KEYS[1], 'gather') == 1 then
    return redis.error_reply('ACKER MANAGED')
  end
  call('HSET', KEYS[1], 'external', 0, 'stamp_key:0', ARGV[1])
  kind = '0'
end
call('HSETNX', KEYS[1], 'epoch', ARGV[8])
for k, name in ipairs({'lost_after', 'downtime', 'most_segments', 'most_bytes'}) do
  if ARGV[k + 1] ~= '' then call('HSET', KEYS[1], name, ARGV[k + 1]) end
end
local found = call('HMGET', KEYS[1], 'stamp_key:' .. kind, 'stamp_key:' .. (tonumber(kind) - 1) % 256,
  'lost_after', 'downtime', 'most_segments', 'most_bytes', 'slots', 'epoch')
local reply = {now, tonumber(kind)}
for k = 1, 8 do reply[k + 2] = found[k] or '' end
return reply
