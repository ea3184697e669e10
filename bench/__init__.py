"""Stock `pulsar-perf` against Vela and real Pulsar, in turns: ratios, not absolute numbers."""
