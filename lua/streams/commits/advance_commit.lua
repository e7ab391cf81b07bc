-- Moves a commit on, from one state to another. No two of its states are the same, so this goes on only from
-- where the caller has come to himself: not where another has gone on, or the store was set back since.
--
-- KEYS  1 commits   hash (lua/streams/commits/begin_commit.lua)
--       ... bound   hash of each reader whose segments it acked (lua/streams/log/bind_reader.lua)
--       ... spent   key of any kind: what was made in each shard (ledger/includes/made.lua), what it needed.
--                   Both where it ends, and all keys are of one slot, or in a chain
-- ARGV  1 number
--       2 from      state it must be in
--       3 to        acker/streams/commits/record.py; or empty: forget it, so that another can come (what it
--                   needed was gone)
--       4 of        of which batch it is, kept with done; or empty
--       5 field     of the commit in each `bound`
--       6 readers   how many `bound` there are
-- Returns 1, or 0 where it is in another state: nothing has changed then. The same again changes nothing.
--- @chained reply == 1
local n, to = ARGV[1], ARGV[3]
local state, stored = unpack(redis.call('HMGET', KEYS[1], n .. ':state', n .. ':what'))
local ends = to == '' or to == 'done'
if state ~= ARGV[2] and (ends or state ~= to) then return 0 end
if to == '' then
  redis.call('HDEL', KEYS[1], n .. ':state', n .. ':what')
elseif to == 'done' then
  local of = ARGV[4] == '' and '' or ' ' .. ARGV[4]
  redis.call('HSET', KEYS[1], n .. ':state', 'done', n .. ':what', redis.sha1hex(stored) .. of)
  local last = 1 + tonumber(ARGV[6])
  for k = 2, last do redis.call('HDEL', KEYS[k], ARGV[5]) end
  for k = last + 1, #KEYS do redis.call('UNLINK', KEYS[k]) end
else
  redis.call('HSET', KEYS[1], n .. ':state', to)
end
return 1
