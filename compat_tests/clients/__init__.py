"""The stock clients of the comparison and the scenarios that each of them runs."""
