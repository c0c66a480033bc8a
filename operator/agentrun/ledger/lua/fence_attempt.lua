-- Decide a silent or late attempt lost.
--
-- KEYS[1] node (hash)
-- Derived: its run, stream, record, waiters, session, the claims index.
-- arg: node, seq
-- Returns 1: fenced, now or before, or there is nothing that could still commit. 0: it had ended already.
-- Cost: O(waiters)
local node = nodes.read(arg.node)
local current, seq = num(node.seq), tonumber(arg.seq)
if current ~= seq then
  return node['done:' .. arg.seq] and 0 or 1
end
if node.state == 'ended' then
  return 0
end
if node.state == 'lost' and num(node.at_stake) > 0 then
  -- It was restored in flight, and its hold was lost with the ledger.
  money.settle(node, node.attempt, {micros = node.at_stake, tokens = '0', calls = '0'}, true)
  write_hash(KEYS[1], node, {at_stake = '0'})
end
if node.state == 'queued' or node.state == 'claimed' then
  fencing.fence(node, clock.now_ms(), false)
end
return 1
