-- Takes back a reader's unacked segments, so that other readers can have them. From then on no commit of
-- these segments is committed. Bound segments stay until the caller has dealt with their commit. The rows of
-- segments that the reader has acked go: it asks for none again.
--
-- KEYS  1 delivered    stream (lua/streams/log/claim_segments.lua)
--       2 returned     stream
--       3 readers      hash (lua/streams/log/claim_segments.lua)
--       4 fences       hash (lua/streams/log/bind_reader.lua)
--       ... payload, unacked  of each segment (lua/streams/log/note_segments.lua)
-- ARGV  1 slot
--       2 reader
--       3 dead         1: only if Spark has not logged a batch of the reader
--       4 ttl          seconds for which the return of segments is remembered
--       5 died         most deaths of workers at one record; or empty: the reader has not died
--       6 noted        its work at its death: id of a segment, first and last of trees there; or -
--       7 ended        number of commits that have ended, or were given up
--       ... field, value  of each of these, in `fences`
--       ... number     of each segment among the delivered
-- A segment whose reader has died notes its begins in the field begun, as "<number of begins> <first and last
-- of the trees at one of which readers die> <begins at one tree> <trees that are not begun again>", with -
-- for no trees.
-- Returns {the number of segments to take back; then field and value of each commit that has segments}. A
-- reader without segments is forgotten.
-- Bounded by the caller: at most 500 segments a call, in the order of their numbers, and the few commits that
-- one reader is in.
local call, back, kept, first = redis.call, 0, false, 8 + 2 * tonumber(ARGV[7])
local highest = tonumber(call('HGET', KEYS[4], 'given_back') or 0)
if ARGV[3] == '1' and string.sub(call('HGET', KEYS[3], ARGV[2]) or '1', 1, 1) == '1' then return {0} end
for at = 8, first - 1, 2 do
  if call('HGET', KEYS[4], ARGV[at]) == ARGV[at + 1] then call('HDEL', KEYS[4], ARGV[at]) end
end
local fences, last = call('HGETALL', KEYS[4]), 0
local found = {}
for at = 1, #fences, 2 do
  if fences[at] ~= 'given_back' then
    last = math.max(last, tonumber(string.match(fences[at + 1], '^%d+') or 0))
    found[#found + 1], found[#found + 2] = fences[at], fences[at + 1]
  end
end

-- The fields of a segment that is given back.
local function fields_of(one)
  if ARGV[5] == '' then return one end
  local pattern = '^(%d+) (%S+) (%S+) (%d+) (%S+)$'
  local count, low, high, hits, guilty = string.match(one[10] or '0 - - 0 -', pattern)
  local segment_id, from, to = string.match(ARGV[6], '^(%x+) (%-?%d+) (%-?%d+)$')
  if segment_id and string.find(one[4], '["' .. segment_id .. '"', 1, true) == 1 then
    hits = from ~= to and 0 or (low == from and high == to) and hits + 1 or 1
    low, high = from, to
    if hits >= tonumber(ARGV[5]) then
      guilty = guilty == '-' and low or guilty .. ',' .. low
      low, high, hits = '-', '-', 0
    end
  end
  local begun = table.concat({count + 1, low, high, hits, guilty}, ' ')
  return {one[1], one[2], one[3], one[4], one[5], one[6], 'bundle', one[8] or '', 'begun', begun}
end

for k = 5, #KEYS, 2 do
  local unacked, number = KEYS[k + 1], ARGV[first + (k - 5) / 2]
  local id = number .. '-0'
  local one = call('XRANGE', KEYS[1], id, id)[1]
  -- A bundle is delivered whole, and stays whole: a rolled back store may have renumbered bound segments.
  if one and tonumber(number) <= last and one[2][7] == 'bundle' then
    last = math.max(last, number + (tonumber(string.match(one[2][8], '^%d+')) or 0))
  end
  local state = call('HGET', unacked, ARGV[1])
  local open = one and state == '1'
  if open and tonumber(number) <= last then
    kept = true
  elseif one then
    call('XDEL', KEYS[1], id)
    if open then
      call('XADD', KEYS[2], '*', unpack(fields_of(one[2])))
      back = back + 1
      highest = math.max(highest, tonumber(number))
    elseif state == '2' then
      call('HDEL', unacked, ARGV[1])
      if call('EXISTS', unacked) == 0 then call('UNLINK', KEYS[k]) end
    end
  end
end
if back > 0 then
  call('HSET', KEYS[4], 'given_back', string.format('%.0f', highest))
  call('EXPIRE', KEYS[4], ARGV[4])
end
if call('XLEN', KEYS[1]) == 0 then
  call('UNLINK', KEYS[1])
  call('HDEL', KEYS[3], ARGV[2])
end
return {back, unpack(kept and found or {})}
