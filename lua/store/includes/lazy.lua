-- A table whose functions are made at the first use of a field that it lacks: making them costs more than
-- most calls, and most calls need few of them. It has the field `make` until then.
local LAZY = {__index = function(made, name)
  local make = made.make
  made.make = nil
  setmetatable(made, nil)
  make(made)
  return made[name]
end}

local function lazy(make)
  return setmetatable({make = make}, LAZY)
end
