"""The stock clients of the comparison and the scenarios each of them plays."""
