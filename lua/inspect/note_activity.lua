-- Notes a write by a person or a program in the activity of a topology. Calls of one run, as the pieces of a
-- replay by a filter, are one entry with the sum of their counts. If the topology is gone, nothing is noted.
--
-- KEYS  1 config     of the topology
--       2 activity   stream (acker/inspect/operate/activity.py)
--       3 marks      stream of marks that other writes have pushed out of the activity
--       ... key      record of an idempotency key, or none: under it one entry is noted
-- ARGV  1 most       entries
--       2 most_marks that were pushed out
--       3 mark       1 for a mark
--       4 call       random: a call that comes again is noted once
--       5 run        of which the call is a piece, or empty
--       6 count      that the call adds
--       7 write      record
-- Returns the id of the entry, which may be an earlier entry of the same call or key; '' if the
-- topology is gone.
-- Bounded: it looks at the latest 16 entries, and takes 16 out at most.
-- An entry remembers its latest 8 calls.
local call = redis.call
if call('EXISTS', KEYS[1]) == 0 then return '' end
local answered = KEYS[4] and call('HGET', KEYS[4], 'answer')
if answered then return answered end
local instant = call('TIME')
local now = instant[1] * 1000 + math.floor(instant[2] / 1000)
local run, count, calls, began, latest = ARGV[5], tonumber(ARGV[6]), 1, now, ''
local before
for _, entry in ipairs(call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 16)) do
  local stored = {}
  for k = 1, #entry[2] - 1, 2 do stored[entry[2][k]] = entry[2][k + 1] end
  if string.find(stored.latest or '', ARGV[4], 1, true) then return entry[1] end
  if not before and run ~= '' and stored.run == run then before = {entry[1], stored} end
end
if before then
  local stored = before[2]
  count = count + (tonumber(stored.count) or 0)
  calls = calls + (tonumber(stored.calls) or 0)
  began = tonumber(stored.began) or now
  latest = stored.latest or ''
  call('XDEL', KEYS[2], before[1])
end
latest = string.sub(latest .. ARGV[4], -8 * #ARGV[4])
local id = call('XADD', KEYS[2], '*', 'run', run, 'count', string.format('%.0f', count),
  'calls', string.format('%.0f', calls), 'began', string.format('%.0f', began), 'latest', latest,
  'mark', ARGV[3], 'write', ARGV[7])
local over = math.min(16, call('XLEN', KEYS[2]) - tonumber(ARGV[1]))
for _, entry in ipairs(over > 0 and call('XRANGE', KEYS[2], '-', '+', 'COUNT', over) or {}) do
  for k = 1, #entry[2] - 1, 2 do
    if entry[2][k] == 'mark' and entry[2][k + 1] == '1' then
      call('XADD', KEYS[3], 'MAXLEN', '=', ARGV[2], entry[1], unpack(entry[2]))
    end
  end
  call('XDEL', KEYS[2], entry[1])
end
-- A record whose time has ended is not made again: it would have no time to live.
if KEYS[4] and call('EXISTS', KEYS[4]) == 1 then call('HSET', KEYS[4], 'answer', id) end
return id
