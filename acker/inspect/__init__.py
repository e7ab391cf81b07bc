"""What people and services look at."""
