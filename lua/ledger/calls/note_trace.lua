-- Adds events to the trace of a tree (acker/ledger/calls/traces.py): for people, beside the ledger.
--
-- KEYS  1 traces  stream  anchor of each of the latest traces
--       2 trace   hash    key of an event -> "ms what"
-- ARGV  1 anchor
--       2 events  most events of a trace
--       3 most    most traces of a shard
--       4 ttl     seconds for which a trace is kept
--       ... key, what  of each event
-- Returns the number of new events. Bounded by the caller: at most 64 events.
local call = redis.call
local most_events, most, ttl = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local instant = call('TIME')
local now = instant[1] * 1000 + math.floor(instant[2] / 1000)
local there, new = call('HLEN', KEYS[2]), 0
if there == 0 then
  local oldest = call('XLEN', KEYS[1]) >= most and call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1]
  if oldest and now - tonumber(string.match(oldest[1], '^%d+')) < ttl * 1000 then return 0 end
  call('XADD', KEYS[1], 'MAXLEN', most, '*', 'anchor', ARGV[1])
  call('EXPIRE', KEYS[1], ttl)
end
for i = 5, #ARGV, 2 do
  if there < most_events and call('HEXISTS', KEYS[2], ARGV[i]) == 0 then
    call('HSET', KEYS[2], ARGV[i], now .. ' ' .. ARGV[i + 1])
    there, new = there + 1, new + 1
  end
end
call('EXPIRE', KEYS[2], ttl, 'NX')
return new
