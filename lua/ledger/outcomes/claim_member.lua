-- Gives a process a place of its own among the members of a spout, or keeps the place that it has.
--
-- KEYS  1 members  hash: place -> "token seen until", the times in ms; run -> when the first one began (ms)
-- ARGV  1 token    of the process
--       2 wanted   place that the process had before, or 0
--       3 most     most places
--       4 ttl      ms for which it holds its place; 0 gives the place back, if the process has it still
--       5 silent   ms after which a place may be taken from its holder where no other one is free
--       6 expire   seconds for which the hash is kept after the last claim
--       7 run      begin of the run that the process knows, or 0
-- Returns {place, run, kept, gone...}: place 0 where it has none, or all places are held. run: since when
--       there was a member at any time. kept: 1 if the process has held its place without a break; otherwise
--       its outcomes may have been confirmed. gone: places without a holder, whose outcomes nobody takes:
--       only the living member with the lowest place gets them.
-- Bounded: by the most places.
local instant = redis.call('TIME')
local now = instant[1] * 1000 + math.floor(instant[2] / 1000)
local token, wanted, most = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local stored = redis.call('HGETALL', KEYS[1])
local holders, place, kept, quiet, run, goes_on = {}, nil, 0, nil, nil, tonumber(ARGV[7]) > 0
for k = 1, #stored, 2 do
  if stored[k] == 'run' then run = tonumber(stored[k + 1]) end
  local at = tonumber(stored[k])
  local own, seen, till = string.match(stored[k + 1], '^(%S+) (%d+) (%d+)$')
  if at and own then
    local holder = {token = own, seen = tonumber(seen), alive = tonumber(till) > now}
    holders[at] = holder
    if own == token then
      place = at
      kept = holder.alive and 1 or 0
    end
    goes_on = goes_on or holder.alive
    local other = holders[quiet]
    -- Of two that were seen in one millisecond the higher place is taken.
    local before = not other or holder.seen < other.seen or (holder.seen == other.seen and at > quiet)
    if holder.alive and before then quiet = at end
  end
end
if not place and ARGV[4] == '0' and wanted > 0 then return {0, 0, 0} end
local function is_free(at)
  return not holders[at] or not holders[at].alive
end
if not place and wanted >= 1 and wanted <= most and is_free(wanted) then place = wanted end
for at = 1, most do
  if not place and is_free(at) then place = at end
end
if not place and quiet and now - holders[quiet].seen >= tonumber(ARGV[5]) then place = quiet end
if not place then return {0, 0, 0} end
local ended = not goes_on and run or -1 -- a run that begins in the same millisecond is another one
if not goes_on then run = nil end
if ARGV[7] ~= '0' then run = math.min(run or now, tonumber(ARGV[7])) end
run = run or math.max(now, ended + 1)
redis.call('HSET', KEYS[1], 'run', string.format('%d', run))
redis.call('HSET', KEYS[1], place, string.format('%s %d %d', token, now, now + ARGV[4]))
redis.call('EXPIRE', KEYS[1], ARGV[6])
local gone, lowest = {}, true
for at, holder in pairs(holders) do
  if at ~= place and holder.alive and at < place then lowest = false end
  if at ~= place and not holder.alive then gone[#gone + 1] = at end
end
if not lowest then gone = {} end
table.sort(gone)
return {place, run, kept, unpack(gone)}
