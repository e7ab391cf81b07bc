"""Measurements that anyone can run: ratios taken side by side in one run, medians of several rounds."""
