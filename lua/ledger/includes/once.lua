-- Applies a call once, however often it is sent (Kafka's idempotent producer): a writer numbers its calls
-- 1, 2, 3 ... and has at most one under way. The last number gets its first reply again, never an empty one;
-- earlier numbers get an empty reply. A number out of turn is refused, so that a later call cannot overtake a
-- lost one. The first call of a writer is also refused if the shard remembers its most writers: to forget a
-- writer too early would let a resend of its call take effect twice.
--
-- ARGV  2 writer    16 random bytes; empty in a call of apply_calls.lua, which takes effect once as a whole
--       3 sequence  1 to 2^53; empty there, too
local writer, sequence = ARGV[2], tonumber(ARGV[3])
local MOST_WRITERS = 1000000 -- if the clock has no field `most_writers`
if writer ~= '' then
  local last, reply = 0, ''
  local seen = call('HGET', WRITERS, writer) or call('HGET', WRITERS_BEFORE, writer)
  if seen then
    local space = find(seen, ' ', 1, true)
    last, reply = tonumber(space and sub(seen, 1, space - 1)), space and sub(seen, space + 1)
    if not last then return redis.error_reply('UNREADABLE what a writer has done: ' .. #seen .. ' bytes') end
  end
  if sequence <= last then
    counters.raise(COUNTERS, 'duplicates', 1)
    return sequence == last and reply or ''
  elseif sequence ~= last + 1 then
    return redis.error_reply('WRITER call ' .. ARGV[3] .. ' out of turn after ' .. last)
  elseif not seen then
    local most = tonumber(call('HGET', CLOCK, 'most_writers') or MOST_WRITERS)
    if call('HLEN', WRITERS) + call('HLEN', WRITERS_BEFORE) >= most then
      return redis.error_reply('FULL this shard remembers ' .. most .. ' writers, and no more')
    end
  end
end

-- Ends the operation: writes its counts, and keeps its reply for a resend.
local function finish(reply)
  counters.flush()
  if writer == '' then return reply end
  if call('HSET', WRITERS, writer, ARGV[3] .. ' ' .. reply) == 1 then call('HDEL', WRITERS_BEFORE, writer) end
  return reply
end
