"""What operators do by hand, and what a ticker adds for the layers below."""
