"""The stock Spark connector on Vela and on real Pulsar."""
