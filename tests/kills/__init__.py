"""Real worker, scheduler and ledger processes, killed and stopped at named instants; what must hold is looked at after."""
