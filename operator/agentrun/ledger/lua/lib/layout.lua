-- What every operation is called with, and the names of keys that cannot be known before the call.
--
-- ARGV[1] is JSON: prefix, namespace, meta, globalSlots (key names), leaseMs, slotLeaseMs, reserveMs, auditLength,
-- contractVersion. ARGV[2] is JSON as well: the operation's own arguments, every one a string (or a list of strings),
-- so that no integer passes through a Lua number unasked. Texts of the user's own are never in it; they follow as
-- ARGV[3] and are stored as they came.
--
-- Keys that follow from a node's or record's stored fields (its record, run, stream, slots, waiters) are built from the
-- prefix. That rules Redis Cluster out, and nothing else: the ledger runs standalone or under Sentinel.
local conf = cjson.decode(ARGV[1])
local arg = cjson.decode(ARGV[2])

local CLAIMED_CONSUMER = '~claimed' -- entries under a claim stand pending here, out of reach of reclaim
local WORKERS_GROUP = 'workers'

-- Write a whole number without an exponent.
local function int(number)
  return string.format('%.0f', number)
end

local function num(text)
  return tonumber(text or '0') or 0
end

local function key(...)
  return conf.prefix .. table.concat({...}, ':')
end

-- Read a hash as a table of strings, or nil when there is none.
local function read_hash(name)
  local flat = redis.call('HGETALL', name)
  if #flat == 0 then
    return nil
  end
  local hash = {}
  for i = 1, #flat, 2 do
    hash[flat[i]] = flat[i + 1]
  end
  return hash
end

-- Write a table of strings to a hash and keep the table in memory equal to it.
local function write_hash(name, hash, changes)
  local flat = {}
  for field, value in pairs(changes) do
    flat[#flat + 1] = field
    flat[#flat + 1] = value
    hash[field] = value
  end
  redis.call('HSET', name, unpack(flat)) -- a few dozen fields at most
end

local function forget(name, hash, ...)
  redis.call('HDEL', name, ...)
  for _, field in ipairs({...}) do
    hash[field] = nil
  end
end

local function is_open()
  return redis.call('HGET', conf.meta, 'open') == '1'
end

-- Whether a lease that was last extended to `until_ms` still counts. It does for a full lease after the server's start.
local function lease_lives(until_ms, now)
  until_ms = num(until_ms)
  if until_ms <= 0 then
    return false
  end
  return until_ms > now or clock.up_ms() < conf.leaseMs
end
