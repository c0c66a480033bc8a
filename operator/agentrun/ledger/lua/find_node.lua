-- Read what is known about a node's current order.
--
-- KEYS[1] node (hash)
-- arg: node
-- Returns {seq, attempt, state, silent ms, worker, last report JSON or '', kind of the order or ''}.
-- Silence does not count beyond the time the server has been up. 'queued' is answered only while the entry stands.
-- Cost: O(1)
local node = nodes.read(arg.node)
local state, silent = node.state or '', 0
if state == 'claimed' then
  silent = math.max(0, math.min(clock.now_ms() - num(node.heard), clock.up_ms()))
elseif state == 'queued' and not deliveries.body(node.stream, node.entry) then
  state = 'lost'
end
return {node.seq or '0', node.attempt or '0', state, int(silent),
  state == 'claimed' and node.worker or '', node.report or '', node.kind or ''}
