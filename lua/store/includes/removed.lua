-- Shared code of the scripts that remove a topology, or something of it.
--
-- The mark of removals is a string: when something was removed last, and the epochs of the topologies that
-- were removed lately, the latest first, with spaces between. A count would begin anew after its time to
-- live, and be what others saw.
local MOST_EPOCHS = 8

-- Notes a removal. removals: the key of the mark; ttl: seconds; epoch: of the topology, if it is removed.
local function note_removal(removals, ttl, epoch)
  local instant, mark = redis.call('TIME'), {}
  mark[1] = instant[1] .. '-' .. instant[2]
  mark[2] = epoch
  for one in (redis.call('GET', removals) or ''):gmatch(' (%S+)') do
    if #mark <= MOST_EPOCHS then mark[#mark + 1] = one end
  end
  redis.call('SET', removals, table.concat(mark, ' '), 'EX', ttl)
end
