-- Bind what an install serves of a cluster to it; what another install holds is returned, and nothing is bound then.
--
-- KEYS[1] installs (hash: '<cluster> <namespace>' to install; the namespace '*' is all of them)
-- arg: cluster, namespaces (list; empty: all of them), install
-- Returns {} when everything is bound, else {install, namespace} of the first that another one holds.
-- Cost: O(pairs that are bound)
local wanted, all = {}, #arg.namespaces == 0
for _, namespace in ipairs(arg.namespaces) do wanted[namespace] = true end
if all then wanted['*'] = true end
local bound, given_up = redis.call('HGETALL', KEYS[1]), {}
for i = 1, #bound, 2 do
  local cluster, namespace = string.match(bound[i], '^(%S+) (%S+)$')
  if cluster == arg.cluster then
    if bound[i + 1] ~= arg.install then
      if all or namespace == '*' or wanted[namespace] then return {bound[i + 1], namespace} end
    elseif not wanted[namespace] then
      table.insert(given_up, bound[i])
    end
  end
end
for _, field in ipairs(given_up) do redis.call('HDEL', KEYS[1], field) end
for namespace in pairs(wanted) do redis.call('HSET', KEYS[1], arg.cluster .. ' ' .. namespace, arg.install) end
return {}
