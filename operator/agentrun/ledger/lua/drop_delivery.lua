-- Remove an entry that cannot be read as an order; the scheduler sends a lost order again.
--
-- KEYS[1] order stream
-- arg: entry
-- Returns 1.
-- Cost: O(1)
nodes.drop_entry(KEYS[1], arg.entry)
return 1
