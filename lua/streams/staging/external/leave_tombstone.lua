-- Ends an external segment in a shard without an ack, when its trees are over. It leaves its state, like an
-- acked segment: otherwise a late copy of a call would emit it once more, and undo its first emit.
--
-- KEYS  1 staged    hash (lua/streams/includes/external.lua)
--       2 counters  hash of its shard: `open:<slot>` counts the segment's rows no longer
-- ARGV  1 margin  seconds for which the state stays longer than the hash says
-- Returns 1, or 0 if it has ended before. What was never emitted is deleted.
local call = redis.call
local state, full, void, rows, alone =
  unpack(call('HMGET', KEYS[1], 'state', 'full', 'void', 'rows', 'alone'))
local left, ttl = string.match(rows or '', '^%d+ (%d+) (%d+)')
ttl = ttl or alone
if not state or not (rows or alone) or string.find(state, '0', 1, true) then return call('DEL', KEYS[1]) end
if state == string.rep('2', #state) then return 0 end
local open = not full and not void and tonumber(left) or 0
if open > 0 then
  local name = 'open:' .. string.match(KEYS[1], '%d+$')
  local raised = redis.pcall('HINCRBY', KEYS[2], name, 0 - open)
  if type(raised) == 'table' or raised <= 0 then call('HDEL', KEYS[2], name) end
end
call('DEL', KEYS[1])
call('HSET', KEYS[1], 'state', string.rep('2', #state), 'void', 1)
call('EXPIRE', KEYS[1], (tonumber(ttl) or 0) + ARGV[1])
return 1
