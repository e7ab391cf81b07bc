-- What a commit has made in this shard: a set of names of staged vectors that are applied and of calls that
-- failed trees. Its inputs are acked only by a store that holds all of it: one that lost its latest moments
-- in the middle of a commit would else complete trees whose tuples it has lost. It is noted by the script
-- that does it, so neither is there without the other; whoever ends the commit deletes it.
-- @needs shard
local made = {}
local MADE_TTL = 30 * 86400 -- of a commit that nobody ends: as long as all that it needs

function made.note(key, what)
  call('SADD', key, what)
  call('EXPIRE', key, MADE_TTL)
end

function made.count(key)
  return call('SCARD', key)
end
