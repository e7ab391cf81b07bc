-- Gives a worker its segments back, from the worker that has taken them over and has not committed them.
--
-- KEYS  1 subscriptions  hash (streams/includes/streams.lua)
--       2 returned       stream of segments whose reader is gone
--       3 delivered      stream of the worker's segments (lua/streams/log/claim_segments.lua): none yet
--       4 readers        hash (lua/streams/log/claim_segments.lua)
--       ... delivered, fences  of each other worker that holds some of the segments
--       ... unacked      of each segment (lua/streams/log/note_segments.lua)
-- ARGV  1 slot           the subscription's number
--       2 reader         the reader of the worker from now on
--       3 ttl            seconds for which a reader's `delivered` is kept
--       4 name           of the subscription
--       5 version        of the function whose step it works on; or empty
--       6 others         number of other workers
--       ... holder, id, entry  of each segment, in the order of the work: 0, it was given back,
--                        or the number of the other worker that holds it; its id there; the id of its entry
-- Returns 1; 0 if one is acked, or is bound to a commit, or no longer exists: nothing has changed.
-- The other worker's batch is not committed from then on: a batch is committed whole.
-- Bounded by the caller: at most 500 segments a call.
local call, slot, others, moved = redis.call, ARGV[1], tonumber(ARGV[6]), {}
local version = call('HGET', KEYS[1], 'version')
if call('HGET', KEYS[1], 'slot:' .. slot) ~= ARGV[4] or ARGV[5] ~= '' and version ~= ARGV[5] then return 0 end
if call('EXISTS', KEYS[3]) == 1 then return 1 end -- a copy of this call
for n = 1, others do
  for _, field in ipairs(call('HKEYS', KEYS[4 + 2 * n])) do
    if field ~= 'given_back' then return 0 end -- it commits
  end
end
local first = 5 + 2 * others
for k = first, #KEYS do
  local holder, id, entry = unpack(ARGV, 7 + 3 * (k - first), 9 + 3 * (k - first))
  local from = holder == '0' and KEYS[2] or KEYS[3 + 2 * tonumber(holder)]
  local one = call('XRANGE', from, id, id)[1]
  if not one or one[2][2] ~= entry or call('HGET', KEYS[k], slot) ~= '1' then return 0 end
  moved[#moved + 1] = {holder = tonumber(holder), from = from, id = id, fields = one[2]}
end
local now = call('TIME')
for number, one in ipairs(moved) do
  call('XDEL', one.from, one.id)
  call('XADD', KEYS[3], number .. '-0', unpack(one.fields))
  if one.holder > 0 then
    local fences = KEYS[4 + 2 * one.holder]
    local back = math.max(tonumber(string.match(one.id, '^%d+')), call('HGET', fences, 'given_back') or 0)
    call('HSET', fences, 'given_back', string.format('%.0f', back))
    call('EXPIRE', fences, ARGV[3])
  end
end
if call('XLEN', KEYS[2]) == 0 then call('UNLINK', KEYS[2]) end
call('HSET', KEYS[4], ARGV[2], string.format('0 %.0f', now[1] * 1000 + math.floor(now[2] / 1000)))
call('EXPIRE', KEYS[3], ARGV[3])
call('EXPIRE', KEYS[4], ARGV[3])
return 1
