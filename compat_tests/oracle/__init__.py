"""Both servers of the comparison behind one interface: Vela from this tree, and real Pulsar."""
