-- Notes the finished requests of a group in a section, and detects the end of all.
--
-- KEYS  1 progress  hash: over, acked  bitmaps of the finished requests, and of the acked requests;
--                   released  the time when the group was released or dropped (ms)
-- ARGV  1 requests  of the group
--       2 over, 3 acked  bitmaps to note, the lowest bit first
--       4 ttl       seconds for which this is kept
-- Returns the bitmap of the acked requests if all are over, and the group was not released; otherwise nil.
-- The same again changes nothing, and returns the same.
--- @chained true
local call, band, bor = redis.call, bit.band, bit.bor
if call('HEXISTS', KEYS[1], 'released') == 1 then return false end

local function united(name, new)
  local known, bytes = call('HGET', KEYS[1], name) or '', {}
  for k = 1, math.max(#known, #new) do -- at most 512
    bytes[k] = string.char(bor(string.byte(known, k) or 0, string.byte(new, k) or 0))
  end
  local found = table.concat(bytes)
  if found ~= known then call('HSET', KEYS[1], name, found) end
  return found
end

local over, acked = united('over', ARGV[2]), united('acked', ARGV[3])
call('EXPIRE', KEYS[1], ARGV[4])
for n = 0, tonumber(ARGV[1]) - 1 do -- at most 4,096
  local byte = string.byte(over, math.floor(n / 8) + 1) or 0
  if band(byte, bit.lshift(1, n % 8)) == 0 then return false end
end
return acked
