-- Take an order back: its seq becomes stale, unless a worker holds it or it has been reported on.
--
-- KEYS[1] node (hash)
-- Derived: its run, stream, slots.
-- arg: node, seq, run
-- Returns 'Withdrawn', 'Claimed', 'Ended', or 'Lost' when neither the node nor its run is known, the order was out
-- when the ledger lost its data, or a recovery of it has been sent.
-- Cost: O(limits)
local node = nodes.read(arg.node)
local current, seq = num(node.seq), tonumber(arg.seq)
if current > seq then
  if node['done:' .. arg.seq] then
    return 'Ended'
  end
  -- With a recovery a former leader has begun to ask what became of it.
  return node.kind == 'Recover' and 'Lost' or 'Withdrawn'
end
if not node.seq and redis.call('EXISTS', key('run', arg.run)) == 0 then
  return 'Lost'
end
if current < seq then
  -- Its dispatch may still be under way: it shall find its seq taken.
  redis.call('HSET', KEYS[1], 'seq', arg.seq, 'state', 'withdrawn', 'request', '', 'epoch', node.epoch or '0')
  return 'Withdrawn'
end
if node.kind == 'Recover' then
  return 'Withdrawn' -- a recovery that nobody has heard of took the seq: this order was never taken, nor will be
end
if node.state == 'claimed' then
  return 'Claimed'
end
if node.state == 'ended' then
  return 'Ended'
end
if node.state == 'lost' then
  return 'Lost'
end
if node.state == 'queued' then
  nodes.close_unclaimed(node, 'withdrawn', false)
end
return 'Withdrawn'
