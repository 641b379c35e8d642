"""How the gateway is measured beside others: processes, wires, load, scenarios. `bench.gateway` runs them."""
