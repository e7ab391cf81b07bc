-- Notes a write by a person or a program in the activity of a topology. Calls of one run, as the pieces of a
-- replay by a filter, are one entry with the sum of their counts. If the topology is gone, nothing is noted.
--
-- KEYS  1 config    of the topology
--       2 activity  stream (acker/inspect/operate/activity.py)
--       ... key     record of an idempotency key, or none: under it one entry is noted
-- ARGV  1 most      entries
--       2 call      random: a call that comes again is noted once
--       3 run       of which the call is a piece, or empty
--       4 count     that the call adds
--       5 write     record
-- Returns the id of the entry, which may be an earlier entry of the same call or key; '' if the
-- topology is gone.
-- Bounded: it looks at the latest 16 entries. An entry remembers its latest 8 calls.
local call = redis.call
if call('EXISTS', KEYS[1]) == 0 then return '' end
local answered = KEYS[3] and call('HGET', KEYS[3], 'answer')
if answered then return answered end
local instant = call('TIME')
local now = instant[1] * 1000 + math.floor(instant[2] / 1000)
local run, count, calls, began, latest = ARGV[3], tonumber(ARGV[4]), 1, now, ''
local before
for _, entry in ipairs(call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 16)) do
  local stored = {}
  for k = 1, #entry[2] - 1, 2 do stored[entry[2][k]] = entry[2][k + 1] end
  if string.find(stored.latest or '', ARGV[2], 1, true) then return entry[1] end
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
latest = string.sub(latest .. ARGV[2], -8 * #ARGV[2])
local id = call('XADD', KEYS[2], 'MAXLEN', '=', ARGV[1], '*', 'run', run,
  'count', string.format('%.0f', count), 'calls', string.format('%.0f', calls),
  'began', string.format('%.0f', began), 'latest', latest, 'write', ARGV[5])
if KEYS[3] then call('HSET', KEYS[3], 'answer', id) end
return id
