-- The scripts run in the Lua 5.1 of Redis and Valkey, which adds these globals and forbids new ones.
std = {
  read_globals = {
    "KEYS", "ARGV", "redis", "bit", "struct", "cjson", "cmsgpack",
    "assert", "error", "ipairs", "next", "pairs", "pcall", "select", "setmetatable", "tonumber", "tostring",
    "type", "unpack",
    "math", "string", "table",
  },
}
max_line_length = 110
-- Whole scripts are checked, with the shared pieces put in, and a script need not use all that a piece offers:
-- 211 is "unused variable", 212 "unused argument", 241 "mutated but never accessed".
ignore = { "211", "212", "241" }
