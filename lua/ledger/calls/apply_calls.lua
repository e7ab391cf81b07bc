-- Applies several calls of a shard as one, once: no client sees the store in between, and a resend gets the
-- same replies.
--
-- KEYS  keys of ledger/includes/shard.lua, then
--       ... [key]   the own keys of each call, one call after another
-- ARGV  1 spouts, 2 writer, 3 sequence
--       ... name, keys, words, [word]  of each call: its script, the number of its own KEYS and ARGV, and
--                   these ARGV
-- Returns their replies, in order, a line each. In place of an error stands its text, after "!": such a call
--       has changed nothing, and the later calls are applied all the same.
-- Bounded by the caller: together they are at most the work of one call of one of these scripts
--       (acker/ledger/calls/messages.py).
--- @script "track"
--- @script "update"
--- @script "fail"
--- @script "reset_timeout"
--- @include "ledger/includes/shard"
--- @include "ledger/includes/once"
local apply = {track = track, update = update, fail = fail, reset_timeout = reset_timeout}
local shards, replies, next_key, next_word = {unpack(KEYS, 1, OWN - 1)}, {}, OWN, 4
while next_word <= #ARGV do
  local many, more = tonumber(ARGV[next_word + 1]), tonumber(ARGV[next_word + 2])
  local keys, args = {unpack(shards)}, {registry, '', ''} -- no writer: all of it together has one
  for k = 1, many do keys[#shards + k] = KEYS[next_key + k - 1] end
  for k = 1, more do args[3 + k] = ARGV[next_word + 2 + k] end
  local reply = apply[ARGV[next_word]](keys, args)
  replies[#replies + 1] = type(reply) == 'table' and '!' .. reply.err or reply
  local spouts_now = call('HGET', CLOCK, 'spouts') or ''
  if spouts_now ~= registry then -- a track has brought a spout: the next call knows it, and its stream
    registry, shards[#shards + 1] = spouts_now, KEYS[next_key]
  end
  next_key, next_word = next_key + many, next_word + 3 + more
end
return finish(table.concat(replies, '\n'))
