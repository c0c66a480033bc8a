-- Take the next epoch; orders of older ones are refused from now on.
--
-- KEYS[1] meta (hash)
-- arg: seen (the highest epoch known elsewhere)
-- Returns the new epoch as digits. A repetition takes a further one, which is as good.
-- Cost: O(1)
local known = num(redis.call('HGET', KEYS[1], 'epoch'))
local taken = int(math.max(known, tonumber(arg.seen)) + 1)
redis.call('HSET', KEYS[1], 'epoch', taken)
return taken
