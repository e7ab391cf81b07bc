-- Registers a step that serves a subscription of an external stream, unless another one does.
--
-- KEYS  1 subscriptions  hash (streams/includes/streams.lua)
-- ARGV  1 slot
--       2 name    of the subscription, as the step knows it
--       3 step    its name
--       4 shared  1: others may serve the subscription that say so, too
--       5 lease   milliseconds for which the step counts as live
--       6 most    steps that may be live at a time
-- Returns 1, or 0 where the store does not have the subscription. An error ACKER SERVED with another live
-- step, and the milliseconds that it has left; ACKER RENAMED with the name that the subscription has now.
-- Bounded: a subscription has at most `most` steps.
local field, step, shared = 'served:' .. ARGV[1], ARGV[3], ARGV[4]
local known = redis.call('HGET', KEYS[1], 'slot:' .. ARGV[1])
if not known then return 0 end
if known ~= ARGV[2] then return redis.error_reply('ACKER RENAMED ' .. known) end
local instant = redis.call('TIME')
local now = instant[1] * 1000 + math.floor(instant[2] / 1000)
local kept = {}
for name, till, shares in string.gmatch(redis.call('HGET', KEYS[1], field) or '', '([^ ,]+) (%d+) ([01])') do
  local left = tonumber(till) - now
  if name ~= step and left > 0 then
    if shares == '0' or shared == '0' or #kept >= tonumber(ARGV[6]) - 1 then
      return redis.error_reply('ACKER SERVED ' .. name .. ' ' .. string.format('%.0f', left))
    end
    kept[#kept + 1] = name .. ' ' .. till .. ' ' .. shares
  end
end
kept[#kept + 1] = step .. ' ' .. string.format('%.0f', now + ARGV[5]) .. ' ' .. shared
redis.call('HSET', KEYS[1], field, table.concat(kept, ','))
return 1
