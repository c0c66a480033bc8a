-- Extend the slots of attempts that are under way, and take lost ones again where there is room.
--
-- KEYS none; derived: the nodes and their slots
-- arg: holders [[node uid, attempt], ...]
-- Returns 1.
-- Cost: O(holders x limits)
local now = clock.now_ms()
for _, holder in ipairs(arg.holders) do
  local stored = redis.call('HGET', key('node', holder[1]), 'slots:' .. holder[2])
  if stored then
    slots.renew(cjson.decode(stored), {uid = holder[1]}, holder[2], now)
  end
end
return 1
