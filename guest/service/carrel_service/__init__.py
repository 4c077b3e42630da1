"""The worker of a service: loads one interface file, and calls its functions for whoever may. Standard library only."""
