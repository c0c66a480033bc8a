-- Read an idempotency record.
--
-- KEYS[1] record (hash)
-- arg: record
-- Returns its fields and `live` as a flat list; empty when there is none.
-- Cost: O(1)
local now = clock.now_ms()
local record = records.read(arg.record, now)
if not record or not record.status then
  return {}
end
return records.view(arg.record, record, records.is_live(record, now))
