-- Holds and settled amounts, in micro-units of money, tokens and model calls.
--
-- Counters change by HINCRBY only, so they are exact int64. They are compared as Lua numbers, which is exact here:
-- limits and single amounts are at most 10^15 < 2^53 (refused otherwise before the call), and a sum that a double
-- cannot hold is rounded to one that is still above every limit.
local money = {}

local UNITS = {'micros', 'tokens', 'calls'}
local UNIT_NAMES = {micros = 'money', tokens = 'tokens', calls = 'modelCalls'}

local function add(name, field, amount)
  if amount == '0' then
    return
  end
  redis.call('HINCRBY', name, field, amount)
end

local function negated(amount)
  if string.sub(amount, 1, 1) == '-' then
    return string.sub(amount, 2)
  end
  return amount == '0' and '0' or '-' .. amount
end

-- The hold of the node's current attempt while it is live, else zeros.
local function live_hold(node, unit)
  return node.held == '1' and node['hold_' .. unit] or '0'
end

local function held_usage(node, attempt)
  local usage = {}
  for _, unit in ipairs(UNITS) do
    usage[unit] = node.hold_attempt == attempt and live_hold(node, unit) or '0'
  end
  return usage
end

-- Why a hold does not fit: nil, or a refusal and the text of the limit. The node's own live hold would be replaced.
function money.refusal(run, node, hold, node_budget)
  for _, unit in ipairs(UNITS) do
    local limit = num(run['limit_' .. unit])
    if limit >= 0 then
      local settled = num(run['settled_' .. unit])
      local others = num(run['held_' .. unit]) - num(live_hold(node, unit))
      if settled + num(hold[unit]) > limit then
        return 'BudgetExhausted', 'run ' .. UNIT_NAMES[unit]
      end
      if settled + others + num(hold[unit]) > limit then
        return 'BudgetHeld', 'run ' .. UNIT_NAMES[unit]
      end
    end
  end
  for _, unit in ipairs(UNITS) do
    local limit = num(node_budget and node_budget[unit] or '-1')
    if limit >= 0 and num(node['settled_' .. unit]) + num(hold[unit]) > limit then
      return 'BudgetExhausted', 'node ' .. UNIT_NAMES[unit]
    end
  end
  return nil
end

function money.hold(node, hold)
  local changes = {held = '1', hold_attempt = node.attempt}
  for _, unit in ipairs(UNITS) do
    add(key('run', node.run), 'held_' .. unit, hold[unit])
    changes['hold_' .. unit] = hold[unit]
  end
  write_hash(key('node', node.uid), node, changes)
end

local ENTRY = '^(%d+) (%d+) (%d+) ([01])$'

local function read_entry(entry)
  local micros, tokens, calls, guess = string.match(entry, ENTRY)
  return {micros = micros, tokens = tokens, calls = calls}, guess == '1'
end

-- Book to the run what late commits have booked on the node alone, while nobody knew the run. Safe to repeat.
-- Returns whether there was anything.
function money.book_late(node, run)
  local booked = false
  for _, unit in ipairs(UNITS) do
    local field = 'unbooked_' .. unit
    if node[field] then
      add(run, 'settled_' .. unit, node[field])
      forget(key('node', node.uid), node, field)
      booked = true
    end
  end
  return booked
end

-- Book what a node is known to have cost beside what late commits have booked since the loss. `estimates`: attempt by
-- attempt, what of it is a worst case: a late commit takes its place. Of any other attempt before the last, and with
-- `final` of the last one as well, the end is on record: a late commit has booked that a second time, or would.
function money.restore(node, settled, final, estimates)
  local name, run = key('node', node.uid), key('run', node.run)
  local run_known = redis.call('EXISTS', run) == 1
  local function book(unit, amount)
    add(name, 'settled_' .. unit, amount)
    if run_known then
      add(run, 'settled_' .. unit, amount)
    end
  end
  for _, unit in ipairs(UNITS) do
    book(unit, settled[unit])
  end
  if run_known then
    money.book_late(node, run)
  end
  local changes = {}
  for field, entry in pairs(node) do
    local attempt = string.match(field, '^cost:(%d+)$')
    if attempt and estimates[attempt] then
      book('micros', negated(estimates[attempt]))
    elseif attempt and (final or num(attempt) < num(node.attempt)) then
      local late = read_entry(entry)
      for _, unit in ipairs(UNITS) do
        book(unit, negated(late[unit]))
      end
    end
  end
  for attempt = 1, num(node.attempt) - (final and 0 or 1) do
    changes['cost:' .. int(attempt)] = '0 0 0 0'
  end
  for attempt, micros in pairs(estimates) do
    changes['cost:' .. attempt] = node['cost:' .. attempt] or (micros .. ' 0 0 1')
  end
  if next(changes) then
    write_hash(name, node, changes)
  end
end

-- Return the node's live hold to its run. Safe to repeat.
function money.give_back(node)
  if node.held ~= '1' then
    return
  end
  local run = key('run', node.run)
  if redis.call('EXISTS', run) == 1 then
    for _, unit in ipairs(UNITS) do
      add(run, 'held_' .. unit, negated(live_hold(node, unit)))
    end
  end
  write_hash(key('node', node.uid), node, {held = '0'})
end

-- Book what an attempt cost, once; an estimate is replaced at most once, by a final amount. Its hold goes back.
-- `usage` nil stands for the hold. `only_replace` books nothing where nothing is booked yet. Returns whether an estimate
-- was replaced.
function money.settle(node, attempt, usage, estimated, only_replace)
  local entry = 'cost:' .. attempt
  local known = node[entry] -- '<micros> <tokens> <calls> <1 if estimated>'
  local old = {micros = '0', tokens = '0', calls = '0'}
  local books = not (only_replace and not known)
  if known then
    local guess
    old, guess = read_entry(known)
    books = guess and not estimated
  end
  if books then
    usage = usage or held_usage(node, attempt)
    local name, run = key('node', node.uid), key('run', node.run)
    local run_known = redis.call('EXISTS', run) == 1
    if run_known and not node.seq then
      -- Sent before the ledger lost its data, and by nothing on record: it may never be sent again, and has cost.
      redis.call('SADD', key('runnodes', node.run), node.uid)
    end
    for _, unit in ipairs(UNITS) do
      for _, amount in ipairs({usage[unit], negated(old[unit])}) do
        add(name, 'settled_' .. unit, amount)
        if run_known then
          add(run, 'settled_' .. unit, amount)
        else
          add(name, 'unbooked_' .. unit, amount) -- until the run is restored
        end
      end
    end
    write_hash(name, node,
      {[entry] = table.concat({usage.micros, usage.tokens, usage.calls, estimated and '1' or '0'}, ' ')})
  end
  if node.hold_attempt == attempt then
    money.give_back(node)
  end
  return known ~= nil and books
end
