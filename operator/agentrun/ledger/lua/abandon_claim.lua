-- Undo a claim under which nothing was executed: the record is free again (under a recovery: as it was found, reserved
-- for the node), the order is reported HandedBack, slots and hold are returned. Of a claim that was decided lost
-- meanwhile the estimate is taken back.
--
-- KEYS[1] node (hash)   KEYS[2] record (hash)
-- Derived: its run, slots, waiters, session, the claims index.
-- arg: node, seq, attempt, token, record, reason
-- Returns 1 when undone (now or before by this token), 0 when the claim is not this token's.
-- Cost: O(limits + waiters)
local now = clock.now_ms()
local node = nodes.read(arg.node)
if node['abandoned:' .. arg.seq] == arg.token then
  return 1
end
local record = records.read(arg.record, now)
if not nodes.holds_claim(node, arg.seq, arg.token, record) then
  if node['fenced:' .. arg.seq] == arg.token then
    fencing.correct_cost(node, arg.attempt, arg.seq, {micros = '0', tokens = '0', calls = '0'}, nil, now)
  end
  return 0
end
nodes.drop_claim(node)
if record then
  if node.kind == 'Recover' then
    records.change(arg.record, record, {token = '', lease = '0', last = int(now)})
    records.reserve(arg.record, record, node.uid, now)
  else
    records.settle(arg.record, record, 'FAILED', nil, node.uid, now)
  end
end
write_hash(KEYS[1], node, {['abandoned:' .. arg.seq] = arg.token})
nodes.end_unclaimed(node, 'HandedBack', now, {worker = node.worker, reason = arg.reason,
  recordVersion = record and record.version})
return 1
