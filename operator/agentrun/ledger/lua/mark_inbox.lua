-- Say whether the record's owner waits for a human.
--
-- KEYS[1] record (hash)
-- Derived: its waiters and their nodes.
-- arg: record, node, open (1 or 0)
-- Returns 1, or 0 when the node is not the record's owner.
-- Cost: O(1), or O(waiters) when the inbox closes with an open effect
local now = clock.now_ms()
local record = records.read(arg.record, now)
if not record or record.owner_node ~= arg.node then
  return 0
end
local was_held = record.inbox == '1' or record.reserved_for == arg.node
write_hash(KEYS[1], record, {inbox = arg.open})
if record.reserved_for == arg.node then
  forget(KEYS[1], record, 'reserved_for', 'reserved_until')
end
if arg.open == '0' and was_held and (record.status == 'UNKNOWN' or record.status == 'EXECUTED') then
  records.tell(arg.record, record, now, true)
end
return 1
