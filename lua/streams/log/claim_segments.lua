-- Gives a reader of a subscription its next segments: each segment to one reader.
--
-- KEYS  1 entries        stream
--       2 subscriptions  hash (streams/includes/streams.lua)
--       3 returned       stream of segments whose reader is gone
--       4 delivered      stream of the reader's segments, numbered 1-0, 2-0 ...; fields entry, segment, rows,
--                        bundle if its entry has it (lua/streams/commits/release_bundle.lua), and begun if
--                        readers that had it have died (return_segments.lua)
--       5 readers        hash: reader -> 1 if Spark has logged a batch of it, or 0; its last sign (ms)
--       6 fences         hash of the reader (lua/streams/log/bind_reader.lua)
-- ARGV  1 slot           the subscription's number
--       2 reader
--       3 offset         number of the last segment that the reader has had in a batch
--       4 rows, 5 bytes, 6 segments  the most to deliver, but one segment in any case. The bytes are bytes of
--                        rows before compression, by the record (acker/streams/log/segments.py)
--       7 end            id of the last entry to deliver, or "+"
--       8 ttl            seconds for which the reader's `delivered` is kept
--       9 shown          most segments in the reply
--       10 name          of the subscription: a rolled back store may have given its number to another
--       11 version       of the function whose step the caller works on; or empty
-- Returns {number of the last segment, if there may be more, then number, entry, record and begun of each
-- segment after `offset`, where these are not more than `shown`}; an error without the subscription, and
-- where segments after `offset` were given back; other ones where the step is of another version of its
-- function, and where the stream is external. Segments that were given before, and are in no batch, come
-- first and alone.
-- A late copy of a call whose reader has gone on and forgotten what it took is refused by the first XADD,
-- whose number is not above the last one: a segment is given first, and only then taken from where it was.
-- A bundle is given whole, or not at all: with it a batch may have more rows and bytes than asked for.
-- A subscription that reads fairly has a cursor in each lane (lua/streams/includes/lanes.lua).
-- Bounded: looks at 500 segments at most, and, of streams that gather, at one bundle in each lane.
local slot, reader, offset = ARGV[1], ARGV[2], tonumber(ARGV[3])
local most_rows, most_bytes, most = tonumber(ARGV[4]), tonumber(ARGV[5]), math.min(500, tonumber(ARGV[6]))
local instant = redis.call('TIME')
local now = instant[1] * 1000 + math.floor(instant[2] / 1000)
if redis.call('HGET', KEYS[2], 'slot:' .. slot) ~= ARGV[10] then
  return redis.error_reply('ACKER subscription ' .. ARGV[10] .. ' was dropped')
end
if redis.call('HEXISTS', KEYS[2], 'external') == 1 then return redis.error_reply('ACKER EXTERNAL') end
if ARGV[11] ~= '' and redis.call('HGET', KEYS[2], 'version') ~= ARGV[11] then
  return redis.error_reply('ACKER VERSION')
end
local cursor, lanes = unpack(redis.call('HMGET', KEYS[2], 'cursor:' .. slot, 'lanes:' .. slot))
if not string.match(cursor or '', '^%d+%-%d+$') or
  lanes and not string.match(lanes, '^%d+%-%d+ %d+%-%d+ %d+%-%d+ %d+%-%d+ [0-4]$') then
  return redis.error_reply('UNREADABLE how far subscription number ' .. slot .. ' has read')
end

if offset < tonumber(redis.call('HGET', KEYS[6], 'given_back') or 0) then
  return redis.error_reply('ACKER FENCED')
end
local n, rows, bytes, given, shown = offset, 0, 0, 0, {}

local function tell(number, entry, record, begun)
  local k = #shown
  shown[k + 1], shown[k + 2], shown[k + 3], shown[k + 4] = number, entry, record, begun or ''
end

local function reply_with(last, more)
  if #shown > 4 * tonumber(ARGV[9]) then return {last, more} end
  return {last, more, unpack(shown)}
end

-- Bytes of the rows of a segment, by its record; 0 if the record cannot be read.
local function size_of(record)
  return tonumber(string.match(record, ',(%d+)%]$') or 0)
end

-- The same of so many segments at hand, from the k-th on. place: the index of the record among their fields.
-- Bounded: a bundle has 451 members at most.
local function sizes(found, k, members, place)
  local sum = 0
  for each = k, k + members - 1 do sum = sum + size_of(found[each][2][place]) end
  return sum
end

-- True if there is room for the k-th segment at hand; for the first of a bundle, if there is room for the
-- whole bundle, and the whole bundle is at hand. bundle: its field, nil without one.
local inside = false
local function room(of, bundle, k, found, place)
  local after, rows_of = string.match(bundle or '', '^(%d+) (%d+)$')
  local members = tonumber(after or 0) + 1
  local free = inside or (given == 0 and k == 1) or (k + members - 1 <= #found and
    (given == 0 or (given + members <= most and rows + (tonumber(rows_of) or of) <= most_rows and
      bytes + sizes(found, k, members, place) <= most_bytes)))
  inside = free and after ~= nil
  return free
end

local function give(entry, record, of, bundle, begun)
  -- A reader that never acks does not fill the store: two batches are far less than a million.
  redis.call('XADD', KEYS[4], 'MAXLEN', '~', 1000000, n + 1 .. '-0',
    'entry', entry, 'segment', record, 'rows', of, unpack(begun and {'bundle', bundle, 'begun', begun} or
      bundle and {'bundle', bundle} or {}))
  n, rows, bytes, given = n + 1, rows + of, bytes + size_of(record), given + 1
  tell(n, entry, record, begun)
end

local full, more = false, false
local had = redis.call('XRANGE', KEYS[4], offset + 1 .. '-0', '+', 'COUNT', 500)
for k, one in ipairs(had) do
  local of = tonumber(one[2][6]) or 0
  full = not room(of, one[2][8], k, had, 4)
  if full then break end
  n, rows, given = tonumber(string.match(one[1], '^%d+')), rows + of, given + 1
  bytes = bytes + size_of(one[2][4])
  tell(n, one[2][2], one[2][4], one[2][10])
end
if given > 0 then return reply_with(n, 1) end

--- @include "streams/includes/lanes"
if lanes then
  more = fairly(lanes)
else
  local back = redis.call('XRANGE', KEYS[3], '-', '+', 'COUNT', 500)
  for k, one in ipairs(back) do
    local of = tonumber(one[2][6]) or 0
    full = not room(of, one[2][8], k, back, 4)
    if full then break end
    give(one[2][2], one[2][4], of, one[2][8], one[2][10])
    redis.call('XDEL', KEYS[3], one[1])
  end
  if given > 0 and redis.call('XLEN', KEYS[3]) == 0 then redis.call('UNLINK', KEYS[3]) end

  local seen = cursor
  if not full and given < most then
    local found = redis.call('XRANGE', KEYS[1], '(' .. cursor, ARGV[7], 'COUNT', 500)
    more = #found == 500
    for k, one in ipairs(found) do
      local fields = one[2]
      local of = tonumber(fields[4]) -- an entry without cannot be read: it is passed over, its trees expire
      if of and fields[6] and string.find(',' .. fields[6] .. ',', ',' .. slot .. ',', 1, true) then
        local bundle = fields[7] == 'bundle' and fields[8] or nil
        full = not room(of, bundle, k, found, 2)
        if full then break end
        give(one[1], fields[2], of, bundle)
      end
      seen = one[1]
    end
  end
  if seen ~= cursor then redis.call('HSET', KEYS[2], 'cursor:' .. slot, seen) end
end

local known = redis.call('HGET', KEYS[5], reader)
local logged, seen_at = string.match(known or '0 0', '^([01]) (%d+)$')
if given > 0 or not logged or math.abs(now - tonumber(seen_at)) > 10000 then
  -- An unreadable reader counts as logged by Spark: it keeps its segments.
  redis.call('HSET', KEYS[5], reader, (logged or '1') .. ' ' .. now)
  redis.call('EXPIRE', KEYS[4], ARGV[8])
  redis.call('EXPIRE', KEYS[5], ARGV[8])
end
return reply_with(n, (full or more or given == most) and 1 or 0)
