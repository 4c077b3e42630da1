"""The worker of a service: loads one interface file, and calls its functions for permitted callers. Standard library only."""
