-- Stores what a commit is to do, once for each writer and number; who comes second gets what is stored.
--
-- KEYS  1 commits   hash  last       the highest number seen
--                         <n>:state  where it has come to (acker/streams/commits/record.py)
--                         <n>:what   what the commit does; its SHA-1 and of which batch it is, when it is
--                         done
-- ARGV  1 number    of the commit, 0 and up; those of a writer ascend
--       2 what      or empty: only look
--       3 ttl       seconds for which the writer is remembered
--       4 attempt   random: tells what is stored now from what may be stored again after it was dropped
--       5 kept      how many commits before this one are known, where they are done: from 1
--       6 config    key of the topology's configuration, in the same slot: who commits may only read that
--       7 shards    how many the topology has, as the caller knows it
-- Returns state and what; '' and '' where only looked at and there is none. An error where the number is
-- less than one that is forgotten: the caller has gone back in time. Another one where the topology was made
-- anew since, with another number of shards.
--- @chained reply[1] == 'stored ' .. ARGV[4]
local n, what = ARGV[1], ARGV[2]
local shards = redis.call('HGET', ARGV[6], 'ackers')
if shards and shards ~= ARGV[7] then return redis.error_reply('ACKER SHARDS ' .. shards) end
local number = tonumber(n)
local state, stored = unpack(redis.call('HMGET', KEYS[1], n .. ':state', n .. ':what'))
if state then return {state, stored or ''} end
local last = redis.call('HGET', KEYS[1], 'last')
if last and not tonumber(last) then return redis.error_reply('UNREADABLE the last commit of a writer') end
if last and number < tonumber(last) then
  return redis.error_reply('ACKER commit ' .. n .. ' comes after commit ' .. last .. ' of the same writer')
end
if what == '' then return {'', ''} end
-- The one before stays, for Spark may repeat its last batch.
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do -- bounded: those of ARGV[5] commits
  local of = string.match(field, '^(%d+):')
  if of and of ~= last then
    local near = tonumber(of) > number - ARGV[5]
    if not (near and redis.call('HGET', KEYS[1], of .. ':state') == 'done') then
      redis.call('HDEL', KEYS[1], field)
    end
  end
end
local state_now = 'stored ' .. ARGV[4]
redis.call('HSET', KEYS[1], 'last', n, n .. ':state', state_now, n .. ':what', what)
redis.call('EXPIRE', KEYS[1], ARGV[3])
return {state_now, what}
