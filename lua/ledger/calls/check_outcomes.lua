-- Checks that entries of a spout's outcomes still exist as they were read.
--
-- KEYS  1 outcomes   stream (ledger/includes/outcomes.lua)
-- ARGV  ... id, digest  of each entry, as the caller read it (lua/ledger/outcomes/confirm.lua)
-- Returns 1, or 0 if an entry is gone, or another has its id.
-- Bounded by the caller: at most 500 entries a call.
--- @chained reply == 1
for k = 1, #ARGV, 2 do
  local found = redis.call('XRANGE', KEYS[1], ARGV[k], ARGV[k])[1]
  if not found then return 0 end
  local said, values = {}, {}
  for f = 1, #found[2], 2 do values[found[2][f]] = found[2][f + 1] end
  for n, name in ipairs({'at', 'status', 'whole', 'part'}) do said[n] = values[name] or '' end
  if string.sub(redis.sha1hex(table.concat(said)), 1, 16) ~= ARGV[k + 1] then return 0 end
end
return 1
