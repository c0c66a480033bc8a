-- Give an unclaimed order back: reported HandedBack, acknowledged, slots and hold returned.
--
-- KEYS[1] node (hash)
-- Derived: its run, slots.
-- arg: node, seq, stream, entry, worker, reason
-- Returns 1 when this call did it, else 0 (done before, claimed, stale).
-- Cost: O(limits)
local node = nodes.read(arg.node)
if node.seq == arg.seq and node.state == 'claimed' then
  return 0
end
if node.seq ~= arg.seq or node.state ~= 'queued' then
  nodes.drop_entry(arg.stream, arg.entry)
  return 0
end
nodes.end_unclaimed(node, 'HandedBack', clock.now_ms(), {worker = arg.worker, reason = arg.reason})
return 1
