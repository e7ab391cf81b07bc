"""Tests of acker: each runs on real servers, each name states a promise."""
