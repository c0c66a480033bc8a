-- Read what a run spent and holds, with its nodes' shares.
--
-- KEYS[1] run (hash)   KEYS[2] runnodes (set)
-- Derived: the nodes.
-- arg: none
-- Returns {{settled micros, tokens, calls, held micros, tokens, calls}, {node uid, micros, tokens, calls} ...}.
-- Cost: O(nodes of the run)
local function amounts(name, ...)
  local values = redis.call('HMGET', name, ...)
  for i = 1, #values do
    values[i] = values[i] or '0'
  end
  return values
end
local answer = {amounts(KEYS[1], 'settled_micros', 'settled_tokens', 'settled_calls',
  'held_micros', 'held_tokens', 'held_calls')}
for _, uid in ipairs(redis.call('SMEMBERS', KEYS[2])) do
  local settled = amounts(key('node', uid), 'settled_micros', 'settled_tokens', 'settled_calls')
  answer[#answer + 1] = {uid, settled[1], settled[2], settled[3]}
end
return answer
