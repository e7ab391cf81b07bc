-- Writes a reading of a topology's counters to its history: to the finest stream, and to each coarser one
-- whose next step has begun. Readings are cumulative, so a coarser stream has some of the same readings.
--
-- KEYS  1 turn        string  name of the process that may write
--       2 config      of the topology
--       ... stream    for each step
-- ARGV  1 writer
--       2 reading     as acker/inspect/topology/history.py packs it
--       ... step, kept  of each stream: its step in ms, the number of readings that it keeps
-- Returns the time of the reading in ms, or 0 if another process has the turn, or the topology is gone.
-- A stream begins with an empty reading, whose counts are all zero. If the server's clock was set back by a
-- minute or more, the readings later than now go. If it was set back by less, nothing is written until the
-- clock reaches its old time. Either way the next reading has the counts of that time as well.
-- Bounded: one entry for each stream; and the readings of one stream, some thousand, if the clock was set
-- back.
local call, floor = redis.call, math.floor
local SET_BACK = 60000
if call('GET', KEYS[1]) ~= ARGV[1] or call('EXISTS', KEYS[2]) == 0 then return 0 end
local instant = call('TIME')
local now = instant[1] * 1000 + floor(instant[2] / 1000)

-- A stream takes no id below its last one, so the remaining readings are written anew. Returns the last one.
local function drop_later(stream)
  local kept = call('XRANGE', stream, '-', now)
  call('UNLINK', stream)
  for _, entry in ipairs(kept) do call('XADD', stream, entry[1], unpack(entry[2])) end
  return kept[#kept]
end

local dropped = false
for k = 3, #KEYS do
  local step, most = tonumber(ARGV[2 * k - 3]), ARGV[2 * k - 2]
  local last = call('XREVRANGE', KEYS[k], '+', '-', 'COUNT', 1)[1]
  local at = last and tonumber(string.match(last[1], '^%d+')) or 0
  if at > now + SET_BACK and not dropped then
    last, dropped = drop_later(KEYS[k]), true -- of one stream in a call: the others have theirs later
    at = last and tonumber(string.match(last[1], '^%d+')) or 0
  end
  if not last then call('XADD', KEYS[k], now - 1 .. '-0', 'reading', '') end
  if floor(now / step) > floor(at / step) then
    call('XADD', KEYS[k], 'MAXLEN', '=', most, now .. '-0', 'reading', ARGV[2])
  end
end
call('PEXPIRE', KEYS[1], 600) -- nobody else reads it all again within the same second
return now
