-- Free every slot that attempts hold, the install-wide ones included.
--
-- KEYS none; derived: the nodes and their slots
-- arg: holders [[node uid, attempt], ...]
-- Returns 1.
-- Cost: O(holders x limits)
for _, holder in ipairs(arg.holders) do
  slots.free(nodes.read(holder[1]), holder[2], false)
end
return 1
