"""The comparison of gateways: processes, wire formats, load and scenarios. `bench.gateway` runs them."""
