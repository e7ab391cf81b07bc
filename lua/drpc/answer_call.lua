-- Answers a request, if it has no answer, and keeps the answer for some time. So each call is counted once,
-- however often this is sent.
--
-- KEYS  1 calls      hash (lua/drpc/begin_call.lua)
--       2 deadlines  sorted set (lua/drpc/begin_call.lua)
--       3 answers    stream: requests that were answered, and a short answer itself. It lives as long as the
--                    last answer
--       4 answer     string: its end, as below, and its duration, as "<how><ms> <steps> <text>"
--       5 result     string (lua/streams/staging/keep_results.lua)
--       6 counted    hash: counts of calls. Fields begin with the minute since 1970 in which they were
--                    answered, or 0, which stands for all, and a space. Then comes:
--                      n            number of calls
--                      r, f, t      number of calls with that end
--                      l<bucket>    number of results, by the calls' duration (latency_histogram.py)
--                      c            number of causes
--                      <how> <steps> <cause>   number of calls without a result, by cause; the cause is empty
--                                              for calls after `MOST` other causes
-- ARGV  1 request
--       2 answer     "<how><steps> <text>": "r" and the result; "f", the failing step, and the reason; "t",
--                    the steps that it waited for, and the cause of the delay. "r" alone: the kept result
--       3 ttl        seconds for which the answer is kept
--       4 most       approximate number of requests in `answers`
--       5 none, 6 two  answers for no result, and for two
--       7 cause      "<steps> <cause>", of an answer without a result
--       8 sure       0: "r" alone is no answer if no result is kept
--       9 begun      the record of the call, as the caller has read it; empty for "r": a late copy finds no
--                    kept result
-- Returns 1 if it was answered now, 2 if it was not answered because no result is kept, otherwise 0.
-- The same again changes nothing, also where the request was begun anew since.
local KEPT, MOST, SHORT = 10, 50, 256
local sub = string.sub
local answer, cause, found = ARGV[2], ARGV[7], redis.call('GET', KEYS[5])
redis.call('UNLINK', KEYS[5])
local known = redis.call('HGET', KEYS[1], ARGV[1])
if not known then return 0 end
-- A call that was taken from its caller since has "-" before it (withdraw_calls.lua).
if ARGV[9] ~= '' and known ~= ARGV[9] and known ~= '-' .. ARGV[9] then return 0 end

if answer == 'r' and not found and ARGV[8] == '0' then return 2 end
if answer == 'r' then
  if found and found ~= '' then
    answer = 'r ' .. found
  else
    answer = found and ARGV[6] or ARGV[5]
    cause = sub(answer, 2)
  end
end
local instant, begun = redis.call('TIME'), tonumber(string.match(known, '%d+$'))
local now = instant[1] * 1000 + math.floor(instant[2] / 1000)
local how, took = sub(answer, 1, 1), math.max(0, now - (begun or now))
local stored = string.format('%s%.0f ', how, took) .. sub(answer, 2)
redis.call('SET', KEYS[4], stored, 'EX', ARGV[3])
redis.call('XADD', KEYS[3], 'MAXLEN', '~', ARGV[4], '*', 'request', ARGV[1],
  unpack(#stored <= SHORT and {'answer', stored} or {}))
redis.call('EXPIRE', KEYS[3], ARGV[3])
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('ZREM', KEYS[2], ARGV[1])

-- A count that cannot be written is left out, and does not end the call in the middle.
local minute = math.floor(now / 60000)
local function count(field) return redis.pcall('HINCRBY', KEYS[6], field, 1) end
if redis.pcall('HEXISTS', KEYS[6], minute .. ' n') == 0 then
  -- Once a minute: of each of 11 minutes there are at most 256 buckets, and about `MOST` causes.
  for _, field in ipairs(redis.call('HKEYS', KEYS[6])) do
    local of = tonumber(string.match(field, '^%d+'))
    if of and of > 0 and of < minute - KEPT then redis.call('HDEL', KEYS[6], field) end
  end
end
for _, of in ipairs({'0 ', minute .. ' '}) do
  count(of .. 'n')
  count(of .. how)
  if how == 'r' then
    count(of .. 'l' .. math.min(255, math.floor(math.log(took + 1) / math.log(2) * 8)))
  else
    local field = of .. how .. ' ' .. cause
    if redis.pcall('HEXISTS', KEYS[6], field) == 0 then
      if (tonumber(redis.pcall('HGET', KEYS[6], of .. 'c')) or 0) < MOST then
        count(of .. 'c')
      else
        field = of .. how .. '  '
      end
    end
    count(field)
  end
end
return 1
