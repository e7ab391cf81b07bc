-- Ends a commit that one server has carried out: it is done, and what was noted on the way goes.
--
-- KEYS  1 commits   hash (lua/streams/commits/begin_commit.lua)
--       ... bound   hash of each reader whose segments it acked (lua/streams/log/bind_reader.lua)
--       ... spent   key of any kind: what was made in each shard (made.lua), and what it needed
-- ARGV  1 number
--       2 what      what the caller knows as stored
--       3 of        of which batch it is, kept with it; or empty
--       4 trail     token and notes of the trail that it must have (note_trail.lua); empty where all of it
--                   is done by the call at hand
--       5 field     of the commit in each `bound`
--       6 readers   how many `bound` there are
-- Returns 1, or 0 where it is in another state, is to do something else, or has not that trail: nothing has
-- changed.
--- @chained reply == 1
local n = ARGV[1]
local state, stored = unpack(redis.call('HMGET', KEYS[1], n .. ':state', n .. ':what'))
if state ~= 'tracked' or stored ~= ARGV[2] then return 0 end
local token, noted = string.match(ARGV[4], '^(%S+) (%d+)$')
if token then
  if redis.call('HGET', KEYS[1], n .. ':trail:' .. token) ~= noted then return 0 end
  for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do -- a few commits, and who carried this one out
    if string.find(field, n .. ':trail:', 1, true) == 1 then redis.call('HDEL', KEYS[1], field) end
  end
end
local of = ARGV[3] == '' and '' or ' ' .. ARGV[3]
redis.call('HSET', KEYS[1], n .. ':state', 'done', n .. ':what', redis.sha1hex(stored) .. of)
local last = 1 + tonumber(ARGV[6])
for k = 2, last do redis.call('HDEL', KEYS[k], ARGV[5]) end
for k = last + 1, #KEYS do redis.call('UNLINK', KEYS[k]) end
return 1
