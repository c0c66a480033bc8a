-- End a recovery that nobody carried out in time: an open effect is UNKNOWN now, the order is stale.
--
-- KEYS[1] node (hash)
-- Derived: its run, stream, record, waiters, session, the claims index.
-- arg: node, seq
-- Returns 1, or 0 when it had ended already.
-- Cost: O(waiters)
local node = nodes.read(arg.node)
local current, seq = num(node.seq), tonumber(arg.seq)
if current ~= seq then
  return node['done:' .. arg.seq] and 0 or 1
end
if node.state == 'ended' and node.kind == 'Recover' then
  return 0
end
local now = clock.now_ms()
if node.state == 'queued' or node.state == 'claimed' then
  node.kind = 'Recover' -- whatever it was: nobody will look further
  fencing.fence(node, now, false)
end
return 1
