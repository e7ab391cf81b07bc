-- Stores the work of a commit, once for each writer and number; a second call gets the stored work.
--
-- KEYS  1 commits   hash  last       the highest number seen
--                         <n>:state  its state (acker/streams/commits/record.py)
--                         <n>:what   the work of the commit; its SHA-1 and its batch, after it is complete
-- ARGV  1 number    of the commit, 0 and up; the numbers of a writer ascend
--       2 what      the work; or empty: only read
--       3 ttl       seconds for which the writer is remembered
--       4 attempt   random: distinguishes this work from work stored again after a drop
--       5 kept      number of complete commits to remember before this one: from 1
--       6 config    key of the topology's configuration, in the same slot, which executors may only read
--       7 shards    the topology's number of shards, as the caller knows it
-- Returns state and work; '' and '' if it only reads and there is none. An error if the number is less than a
-- forgotten one: the caller has gone back in time. Another error if the topology was made anew since, with
-- another number of shards.
--- @chained reply[1] == 'prepared ' .. ARGV[4]
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
-- The commit before stays, because Spark may repeat its last batch.
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do -- bounded: ARGV[5] commits
  local of = string.match(field, '^(%d+):')
  if of and of ~= last then
    local near = tonumber(of) > number - ARGV[5]
    if not (near and redis.call('HGET', KEYS[1], of .. ':state') == 'complete') then
      redis.call('HDEL', KEYS[1], field)
    end
  end
end
local state_now = 'prepared ' .. ARGV[4]
redis.call('HSET', KEYS[1], 'last', n, n .. ':state', state_now, n .. ':what', what)
redis.call('EXPIRE', KEYS[1], ARGV[3])
return {state_now, what}
