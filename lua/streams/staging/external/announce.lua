-- Announces segments of an external stream, before they are emitted, for the subscriptions that exist now.
-- Where there is none, nobody owes anything for their rows: they are counted, and not announced.
--
-- KEYS  1 entries        stream
--       2 subscriptions  hash (streams/includes/streams.lua)
--       ... marker       string of each segment: the slots that it was announced for
-- ARGV  1 number  of the key that their stamps have
--       2 key
--       3 ttl     seconds after which a segment is too old: its rows are taken for old then
--       4 margin  seconds for which more it is known that it was announced
--       5 most    open segments that the stream may have, where nothing else is set
--       6 bytes   of the vectors of its open segments that the stream may have, where nothing else is set
--       7 known   slots that the caller has seen of the stream: one that is there no more, and was not
--                 dropped, is lost; empty for none
--       8 among   slots, as "0,2", that the segments were staged for: they are announced for no other ones;
--                 "all" for all that there are
--       ... sent, rows, bytes, before, after  of each segment: when it was begun (Unix seconds), its rows,
--                 about the bytes of its vectors for one subscription, and its record before and after its
--                 slots
-- Returns the server's time (ms), and for each segment the slots that it is for, as "0,2"; the same again is
-- answered the same. An error ACKER where nothing has changed: LOST the stream has another key,
-- FORGOTTEN it has lost subscriptions, LATE a segment is too old, FULL with how many segments are open, and
-- HEAVY with the bytes of their vectors.
-- Bounded by the caller: at most 500 segments a call.
-- In a chain it succeeds if each segment is for all slots that it was staged for.
--- @chained only(reply, 2, ARGV[8], ARGV[8])
--- @include "streams/includes/streams"
local find = string.find
local instant = call('TIME')
local now = instant[1] * 1000 + math.floor(instant[2] / 1000)
local kind, key, slots, open, most, bytes, heaviest = unpack(call('HMGET', KEYS[2], 'external',
  'stamp_key:' .. ARGV[1], 'slots', 'segments', 'most_segments', 'bytes', 'most_bytes'))
if not kind or key ~= ARGV[2] then return redis.error_reply('ACKER LOST') end
slots = slots or ''
local gone = ',' .. (call('HGET', KEYS[2], 'gone') or '')
for slot in string.gmatch(ARGV[7], '[^,]+') do -- at most the 64 present ones, and slots dropped meanwhile
  local there = find(',' .. slots .. ',', ',' .. slot .. ',', 1, true)
  if not there and not find(gone, ',' .. slot .. ',', 1, true) then
    return redis.error_reply('ACKER FORGOTTEN')
  end
end
if ARGV[8] ~= 'all' then
  local staged, left = ',' .. ARGV[8] .. ',', {}
  for slot in string.gmatch(slots, '[^,]+') do -- at most 64
    if find(staged, ',' .. slot .. ',', 1, true) then left[#left + 1] = slot end
  end
  slots = table.concat(left, ',')
end
local owed = 0
for _ in string.gmatch(slots, '[^,]+') do owed = owed + 1 end -- at most 64
local ttl, fresh, weight = tonumber(ARGV[3]), 0, 0
for k = 3, #KEYS do
  local sent = tonumber(ARGV[5 * k - 6])
  if call('EXISTS', KEYS[k]) == 0 then
    if now > (sent + ttl) * 1000 then return redis.error_reply('ACKER LATE') end
    fresh, weight = fresh + 1, weight + owed * ARGV[5 * k - 4]
  end
end
bytes = tonumber(bytes or 0) or 0
if weight > 0 and bytes + weight > (tonumber(heaviest or nil) or tonumber(ARGV[6])) then
  return redis.error_reply('ACKER HEAVY ' .. string.format('%.0f', bytes))
end
if fresh > 0 and (tonumber(open or 0) or 0) + fresh > (tonumber(most or nil) or tonumber(ARGV[5])) then
  return redis.error_reply('ACKER FULL ' .. (tonumber(open or 0) or 0))
end
local reply = {now}
for k = 3, #KEYS do
  local sent, rows, size, before, after = unpack(ARGV, 5 * k - 6, 5 * k - 2)
  local known = call('GET', KEYS[k])
  if not known then
    call('SET', KEYS[k], slots, 'EX', ttl + tonumber(ARGV[4]))
    if slots == '' then
      stream.count(KEYS[2], 'unheard', rows)
    else
      call('XADD', KEYS[1], '*', 'segment', before .. slots .. after, 'rows', rows, 'slots', slots,
        'sent', sent, 'key', ARGV[1], 'bytes', owed * size)
      for slot in string.gmatch(slots, '[^,]+') do -- at most 64
        stream.count(KEYS[2], 'rows:' .. slot, rows)
        stream.count(KEYS[2], 'emitted', rows)
      end
      stream.count(KEYS[2], 'segments', 1)
      stream.count(KEYS[2], 'bytes', owed * size)
    end
  end
  reply[#reply + 1] = known or slots
end
return reply
