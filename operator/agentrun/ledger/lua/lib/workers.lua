-- Registrations of workers: a hash per pool, field = the worker's name, value =
-- `<heard ms> <slots> <1 if retired> <contract version> <incarnation>`. A name has one incarnation at a time.
local workers = {}

local FORGOTTEN_AFTER_MS = 86400000 -- a day: until then a retired worker is proof that it is gone

function workers.read(pool, name)
  local text = redis.call('HGET', key('workers', pool or ''), name or '')
  if not text then
    return nil
  end
  local heard, count, retired, version, incarnation = string.match(text, '^(%d+) (%d+) ([01]) (%d+) (.*)$')
  return {heard = tonumber(heard), slots = tonumber(count), retired = retired == '1', version = version,
    incarnation = incarnation}
end

function workers.write(pool, name, worker)
  redis.call('HSET', key('workers', pool), name, table.concat({int(worker.heard), int(worker.slots),
    worker.retired and '1' or '0', worker.version, worker.incarnation}, ' '))
  -- A pool that nobody works for any more has nobody who could forget the last of its workers.
  redis.call('PEXPIRE', key('workers', pool), 2 * FORGOTTEN_AFTER_MS)
end

-- Whether this incarnation is proven to execute nothing any more: it retired, or a later one took its name.
function workers.is_gone(pool, name, incarnation)
  local worker = name and workers.read(pool, name)
  if not worker then
    return false
  end
  return worker.incarnation ~= incarnation or worker.retired
end

function workers.is_alive(worker, now)
  return not worker.retired and (now - worker.heard < conf.leaseMs or clock.up_ms() < conf.leaseMs)
end

-- Note that a worker was heard of; an earlier incarnation that comes back late changes nothing.
function workers.hear(pool, name, incarnation, count, now)
  local worker = workers.read(pool, name)
  if worker and worker.incarnation ~= incarnation then
    return
  end
  if worker and worker.retired then
    return
  end
  workers.write(pool, name, {heard = now, slots = count, retired = false,
    version = worker and worker.version or int(conf.contractVersion), incarnation = incarnation})
end

function workers.prune(pool, now)
  local flat = redis.call('HKEYS', key('workers', pool))
  for _, name in ipairs(flat) do
    local worker = workers.read(pool, name)
    if not worker or now - worker.heard > FORGOTTEN_AFTER_MS then
      redis.call('HDEL', key('workers', pool), name)
    end
  end
end
