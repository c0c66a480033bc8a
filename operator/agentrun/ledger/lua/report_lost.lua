-- Report claims that have not been heard of for a lease; sweep those of ended runs.
--
-- KEYS[1] claims index (sorted set)
-- Derived: the nodes, their runs, records, waiters, the reports.
-- arg: batch
-- Returns how many were looked at.
-- Cost: O(batch)
return fencing.report_lost(clock.now_ms(), tonumber(arg.batch))
