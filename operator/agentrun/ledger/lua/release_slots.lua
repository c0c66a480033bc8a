-- Free every slot an attempt holds, the install-wide one included.
--
-- KEYS[1] node (hash)
-- Derived: its slots.
-- arg: node, attempt
-- Returns 1.
-- Cost: O(limits)
local node = nodes.read(arg.node)
slots.free(node, arg.attempt, false)
return 1
