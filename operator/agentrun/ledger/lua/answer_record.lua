-- Apply a human's answer to the record as it was asked about.
--
-- KEYS[1] record (hash)
-- Derived: its waiters and their nodes.
-- arg: record, version, status (FAILED, SUCCESS or EXECUTED), answer (a digest of the whole answer)
-- ARGV[3] the outcome JSON, or '' for none
-- Returns 'Applied' (now or before) or 'Moved'.
-- Cost: O(waiters)
local now = clock.now_ms()
local record = records.read(arg.record, now)
if not record then
  return 'Moved'
end
local answer = arg.version .. ' ' .. arg.answer
if record.answered == answer then
  return 'Applied'
end
local open_effect = record.status == 'UNKNOWN' or record.status == 'EXECUTED'
if record.version ~= arg.version or not open_effect or (record.token or '') ~= '' then
  return 'Moved'
end
local owner = record.owner_node
records.settle(arg.record, record, arg.status, ARGV[3] ~= '' and ARGV[3] or nil, owner, now)
if arg.status == 'EXECUTED' then
  forget(KEYS[1], record, 'reserved_for', 'reserved_until')
  records.tell(arg.record, record, now, true)
end
write_hash(KEYS[1], record, {answered = answer})
return 'Applied'
