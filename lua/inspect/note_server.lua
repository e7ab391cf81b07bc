-- Notes since when a key has been with its server. A server that was started again, or promoted, is another
-- one, and it may have lost the latest moments. A store that lost all it had has lost the note, too.
--
-- KEYS  1 hash   whose field `server` has the server, the time, and the latest time that was seen there
--       2 owner  nothing is noted without it: the topology was removed. A hash with a time to live needs none
-- ARGV  1 time to live of the hash in ms, or 0: it has none
-- Returns {since, now, server}: times in ms by the server's clock.
local call = redis.call
local instant = call('TIME')
local now = instant[1] * 1000 + math.floor(instant[2] / 1000)
local server = string.match(call('INFO', 'server'), 'run_id:(%w+)') or ''
local life = tonumber(ARGV[1])
local known, since, latest = string.match(call('HGET', KEYS[1], 'server') or '', '^(%w*) (%d+) ?(%d*)$')
since, latest = tonumber(since), tonumber(latest) or tonumber(since) or 0
if life == 0 and call('EXISTS', KEYS[2]) == 0 then return {now, now, server} end
if not since or known ~= server then since = now end
-- The clock was ahead: what was tracked then says that it was later than it is.
if now < latest then since = latest end
latest = math.max(latest, now)
call('HSET', KEYS[1], 'server', string.format('%s %.0f %.0f', server, since, latest))
if life > 0 then call('PEXPIRE', KEYS[1], life) end
return {since, now, server}
