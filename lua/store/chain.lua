-- Runs scripts one after another in one call, for a store that is one server: their keys are in many slots.
-- No client sees the store in between, and a replica, or the append-only file, has the writes of all scripts
-- or of none. A script runs only after a success of the script before: the line `@chained` of a header is the
-- condition of success on its reply.
--
-- KEYS  the keys of each script, one after another
-- ARGV  name, keys, words, then its own ARGV  of each script: its numbers of KEYS and ARGV
-- Returns the replies of the scripts that ran, in order. If there are fewer replies than scripts, the last
-- one failed, and the later ones did not run. In place of an error stands its text, after "!".
-- Bounded by the caller: at most 128 scripts a call (acker/streams/commits/run.py).
--- @chained_scripts
local replies, next_key, next_word = {}, 1, 1
while next_word <= #ARGV do
  local name, many, own_keys, own_words = ARGV[next_word], tonumber(ARGV[next_word + 1]), {}, {}
  local words_of = tonumber(ARGV[next_word + 2])
  for k = 1, many do own_keys[k] = KEYS[next_key + k - 1] end
  for k = 1, words_of do own_words[k] = ARGV[next_word + 2 + k] end
  next_key, next_word = next_key + many, next_word + 3 + words_of
  local script = chained(name)
  local answer = script.run(own_keys, own_words)
  if type(answer) == 'table' and answer.err then
    replies[#replies + 1] = '!' .. answer.err
    break
  end
  replies[#replies + 1] = answer
  if not script.done(answer, own_words) then break end
end
return replies
