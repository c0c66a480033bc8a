-- Counted limits: sorted sets of holders (`<node uid>/<attempt>`) by the end of their lease. In use = live holders.
local slots = {}

function slots.key(name)
  if name == 'global' then
    return conf.globalSlots
  end
  return key('slots', name)
end

-- The limits that an attempt fits into, as stored at its dispatch: a list of {name, limit}.
function slots.of(node, attempt)
  local stored = node['slots:' .. attempt]
  return stored and cjson.decode(stored) or {}
end

local function holder_of(node, attempt)
  return node.uid .. '/' .. attempt
end

-- The name of the first limit without room for the holder, or nil. Worker-side steps leave the install-wide one alone.
function slots.full(list, node, attempt, now, skip_global)
  local holder = holder_of(node, attempt)
  for _, limit in ipairs(list) do
    if not (skip_global and limit[1] == 'global') then
      local name = slots.key(limit[1])
      local held_until = num(redis.call('ZSCORE', name, holder))
      if held_until <= now then
        local live = redis.call('ZCOUNT', name, '(' .. int(now), '+inf')
        if live >= num(limit[2]) then
          return limit[1]
        end
      end
    end
  end
  return nil
end

-- Take or extend every slot of the list; room has been checked before. Dead holders are dropped.
function slots.take(list, node, attempt, now, skip_global)
  local holder = holder_of(node, attempt)
  for _, limit in ipairs(list) do
    if not (skip_global and limit[1] == 'global') then
      local name = slots.key(limit[1])
      redis.call('ZADD', name, int(now + conf.slotLeaseMs), holder)
      redis.call('ZREMRANGEBYSCORE', name, '-inf', int(now))
    end
  end
end

-- Extend what is still held, and take again what was lost where there is room.
function slots.renew(list, node, attempt, now)
  for _, limit in ipairs(list) do
    local one = {limit}
    if not slots.full(one, node, attempt, now, false) then
      slots.take(one, node, attempt, now, false)
    end
  end
end

function slots.free(node, attempt, skip_global)
  local holder = holder_of(node, attempt)
  for _, limit in ipairs(slots.of(node, attempt)) do
    if not (skip_global and limit[1] == 'global') then
      redis.call('ZREM', slots.key(limit[1]), holder)
    end
  end
end
