"""Generates the structural schemas in crds/ and in the chart from the resource models."""
