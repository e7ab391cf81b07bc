-- Notes among the facts of a topology's health what a spout waits for, or how far its dead letters were sent,
-- or drops that note. If the spout is gone, it writes nothing, because nobody would remove the note. Letters
-- were sent as far as any sender has come: a slow one takes nothing back.
--
-- KEYS  1 config  of the topology
--       2 health  hash (acker/inspect/topology/health.py)
-- ARGV  1 kind    unread, unsent or sent
--       2 spout
--       3 value   "" drops the note
-- Returns 1, or 0 if the spout is gone, or another sender is as far.
local function place(number)
  local ms, sequence = string.match(number or '', '^(%d+)-(%d+)$')
  return tonumber(ms) or 0, tonumber(sequence) or 0
end

local field = ARGV[1] .. ':' .. ARGV[2]
if ARGV[3] == '' then
  redis.call('HDEL', KEYS[2], field)
  return 1
end
if redis.call('HEXISTS', KEYS[1], 'spout:' .. ARGV[2]) == 0 then return 0 end
if ARGV[1] == 'sent' then
  local ms, sequence = place(ARGV[3])
  local most_ms, most_sequence = place(redis.call('HGET', KEYS[2], field))
  if ms < most_ms or ms == most_ms and sequence <= most_sequence then return 0 end
end
redis.call('HSET', KEYS[2], field, ARGV[3])
return 1
