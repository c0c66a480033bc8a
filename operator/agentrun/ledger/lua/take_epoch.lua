-- Take the next epoch; orders of older ones are refused from now on. Notes for workers, whose users may not ask the
-- server, whether what it has answered is on its disk.
--
-- KEYS[1] meta (hash)
-- arg: seen (the highest epoch known elsewhere), durable (1 or 0)
-- Returns the new epoch as digits. A repetition takes a further one, which is as good.
-- Cost: O(1)
local known = num(redis.call('HGET', KEYS[1], 'epoch'))
local taken = int(math.max(known, tonumber(arg.seen)) + 1)
redis.call('HSET', KEYS[1], 'epoch', taken, 'durable', arg.durable)
return taken
