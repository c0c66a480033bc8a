-- Give this consumer reports that were delivered (to whomever) and never acknowledged.
--
-- KEYS[1] reports (stream)
-- arg: consumer, start (an id; '0-0' first), count
-- Returns {next start ('0-0': that was all), {id, report JSON} ...}.
-- The only reader is the leader, so what others hold pending is a predecessor's; their consumers go when empty.
-- Cost: O(count)
local found = redis.pcall('XAUTOCLAIM', KEYS[1], 'scheduler', arg.consumer, '0', arg.start, 'COUNT', arg.count)
if found.err then
  if not string.find(found.err, 'NOGROUP', 1, true) then
    error(found.err)
  end
  redis.call('XGROUP', 'CREATE', KEYS[1], 'scheduler', '0', 'MKSTREAM')
  return {'0-0'}
end
local answer = {found[1]}
for _, entry in ipairs(found[2]) do
  local text = entry and entry[2] and entry[2][2]
  if text then
    answer[#answer + 1] = {entry[1], text}
  elseif entry and entry[1] then
    redis.call('XACK', KEYS[1], 'scheduler', entry[1])
  end
end
if found[1] == '0-0' then
  for _, info in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], 'scheduler')) do
    if info[2] ~= arg.consumer and info[4] == 0 then
      redis.call('XGROUP', 'DELCONSUMER', KEYS[1], 'scheduler', info[2])
    end
  end
end
return answer
