-- The ledger's clock: the server's own, so that no machine's clock counts. Tests put another one in its place.
local clock = {}

-- Unix microseconds; below 2^53, so exact.
function clock.now_us()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

function clock.now_ms()
  return math.floor(clock.now_us() / 1000)
end

-- How long the server has been up. While it was down nobody could be heard, so silence never counts beyond this.
function clock.up_ms()
  local seconds = string.match(redis.call('INFO', 'server'), 'uptime_in_seconds:(%d+)')
  return tonumber(seconds) * 1000
end
