-- Moves a commit from one state to another. No two of its states are the same, so it moves only from the
-- state that the caller reached itself, and not after another executor moved it or the store was rolled back.
--
-- KEYS  1 commits   hash (lua/streams/commits/begin_commit.lua)
--       ... fences  hash of each reader whose segments it acked (lua/streams/log/bind_reader.lua)
--       ... spent   key of any kind: the progress in each shard (ledger/includes/applied.lua), the staged
--                   data. Only at the commit's end, if all keys are in one slot, or in a chain
-- ARGV  1 number
--       2 from      state it must be in
--       3 to        acker/streams/commits/record.py; or empty: forget it, so that another can come (its
--                   staged data was gone)
--       4 of        its batch, kept with complete; or empty
--       5 field     of the commit in each `fences`
--       6 readers   number of `fences`
-- Returns 1, or 0 if it is in another state: nothing has changed then. The same again changes nothing.
--- @chained reply == 1
local n, to = ARGV[1], ARGV[3]
local state, stored = unpack(redis.call('HMGET', KEYS[1], n .. ':state', n .. ':what'))
local ends = to == '' or to == 'complete'
if state ~= ARGV[2] and (ends or state ~= to) then return 0 end
if to == '' then
  redis.call('HDEL', KEYS[1], n .. ':state', n .. ':what')
elseif to == 'complete' then
  local of = ARGV[4] == '' and '' or ' ' .. ARGV[4]
  redis.call('HSET', KEYS[1], n .. ':state', 'complete', n .. ':what', redis.sha1hex(stored) .. of)
  local last = 1 + tonumber(ARGV[6])
  for k = 2, last do redis.call('HDEL', KEYS[k], ARGV[5]) end
  for k = last + 1, #KEYS do redis.call('UNLINK', KEYS[k]) end
else
  redis.call('HSET', KEYS[1], n .. ':state', to)
end
return 1
