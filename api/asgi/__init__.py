"""What stands around the routes: who may call, how much, what is logged, and the dashboard."""
