"""Everything that is shown, as JSON for every face."""
