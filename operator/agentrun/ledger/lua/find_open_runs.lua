-- List a batch of the runs that are not wound up.
--
-- KEYS[1] runs (set)
-- Derived: the runs.
-- arg: cursor (of SSCAN, first 0), batch
-- Returns {next cursor ('0' when done), {uid, name, state} ...}; name and state are empty where the run is forgotten.
-- Cost: O(batch)
local page = redis.call('SSCAN', KEYS[1], arg.cursor, 'COUNT', arg.batch)
local answer = {page[1]}
for _, uid in ipairs(page[2]) do
  local values = redis.call('HMGET', key('run', uid), 'name', 'state')
  answer[#answer + 1] = {uid, values[1] or '', values[2] or ''}
end
return answer
