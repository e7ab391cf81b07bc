"""The reading side: views of a topology for people and services."""
