-- Decides the roots of a task's rows: whatever Spark repeats, the same rows get the same roots.
--
-- Spark may run a task again or twice at once, evaluate a DataFrame several times in a batch, and let one
-- task work on several partitions. A partition is identified by its stage and number, by its rank in its
-- task, and by a fingerprint of its rows; another evaluation (stage) identifies it by the fingerprint. A
-- stage may also evaluate it several times, in branches of a union: these have the partition's own number
-- below `track`.
--
-- KEYS  1 tracked      hash, all of a batch; for each source (one call of track):
--                      <source>|stages             -> stages that evaluated it, each followed by a space
--                      <source>|n:<task>           -> number of partitions of the task
--                      <source>|entry:<task>:<i>   -> fingerprint#k: the k-th such partition in the stage
--                      <source>|seen:<task>:<i>:<attempt>   that attempt has had it
--                      <source>|k:<stage>:<fingerprint>     -> number of such partitions of the stage
--                      <source>|own:<stage>:<number>:<fingerprint>   -> fingerprint#k of the partition
--                      <source>|roots:<fingerprint>#<k>     -> the roots (JSON)
--                      <source>|of:<stage>         -> number of partitions of the stage
--                      ended                       -> 1, if its job has had its commit
-- ARGV  1 ttl, 2 source, 3 stage, 4 partition, 5 attempt, 6 fingerprint
--       7 roots   the staged roots
--       8 number  the partition's own
-- Returns the roots to be used: the given ones, or the ones given first; an error if the job has ended.
-- Bounded: one task works on at most some thousand partitions.
local tracked, source, stage, attempt, fingerprint = KEYS[1], ARGV[2] .. '|', ARGV[3], ARGV[5], ARGV[6]
local task = stage .. '.' .. ARGV[4]
local call = redis.call
if call('HEXISTS', tracked, 'ended') == 1 then
  return redis.error_reply('ACKER they were tracked by a job that has ended')
end
local n = tonumber(call('HGET', tracked, source .. 'n:' .. task) or 0)
local found, other
for i = 1, n do
  if call('HEXISTS', tracked, source .. 'seen:' .. task .. ':' .. i .. ':' .. attempt) == 0 then
    local entry = call('HGET', tracked, source .. 'entry:' .. task .. ':' .. i)
    if string.match(entry, '^[^#]*') == fingerprint then
      found = i
      break
    end
    other = other or i
  end
end
found = found or other -- another attempt has read other rows: the first wins
if not found then
  found = call('HINCRBY', tracked, source .. 'n:' .. task, 1)
  local own = source .. 'own:' .. stage .. ':' .. ARGV[8] .. ':' .. fingerprint
  local same = call('HGET', tracked, own)
  if not same then
    same = fingerprint .. '#' .. call('HINCRBY', tracked, source .. 'k:' .. stage .. ':' .. fingerprint, 1)
    call('HSET', tracked, own, same)
    if call('HINCRBY', tracked, source .. 'of:' .. stage, 1) == 1 then
      local stages = call('HGET', tracked, source .. 'stages') or ''
      call('HSET', tracked, source .. 'stages', stages .. stage .. ' ')
    end
  end
  call('HSET', tracked, source .. 'entry:' .. task .. ':' .. found, same)
end
call('HSET', tracked, source .. 'seen:' .. task .. ':' .. found .. ':' .. attempt, 1)
local entry = call('HGET', tracked, source .. 'entry:' .. task .. ':' .. found)
call('HSETNX', tracked, source .. 'roots:' .. entry, ARGV[7])
call('EXPIRE', tracked, ARGV[1])
return call('HGET', tracked, source .. 'roots:' .. entry)
