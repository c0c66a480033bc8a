-- Report, once, that a recovery found its call still running.
--
-- KEYS[1] node (hash)   KEYS[2] record (hash)
-- arg: node, seq, token, record
-- Returns 1, or 0 when the recovery is fenced.
-- Cost: O(1)
local now = clock.now_ms()
local node = nodes.read(arg.node)
local record = records.read(arg.record, now)
if not nodes.holds_claim(node, arg.seq, arg.token, record) then
  return 0
end
if node.adopted ~= '1' then
  write_hash(KEYS[1], node, {adopted = '1'})
  reports.send(node, 'Adopted', now, {worker = node.worker, deadlineMs = int(math.max(num(node.deadline) - now, 0)),
    recordVersion = record and record.version})
end
return 1
