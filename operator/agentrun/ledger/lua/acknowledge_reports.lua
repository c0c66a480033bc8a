-- Acknowledge reports and remove them; nothing else ever shortens the stream.
--
-- KEYS[1] reports (stream)
-- arg: ids (list)
-- Returns how many were pending.
-- Cost: O(ids)
local count = 0
for _, id in ipairs(arg.ids) do
  count = count + redis.call('XACK', KEYS[1], 'scheduler', id)
  redis.call('XDEL', KEYS[1], id)
end
return count
