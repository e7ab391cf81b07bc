"""What gathers in lines, and streams that nobody reads."""
