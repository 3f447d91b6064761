"""Benchmarks: one federated round of FedNCF, done by veilrec and by everyone else."""
