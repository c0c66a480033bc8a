"""Pools on a cluster: Deployments of workers, made, scaled and taken away as the tools and their queues ask for."""
