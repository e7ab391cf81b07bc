"""Routes of programs in any language: spouts, bolts, and steps over external streams."""
