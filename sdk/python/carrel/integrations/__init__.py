"""Boxes for the agent frameworks, one module each. Importing carrel imports none of them; docs/frameworks.md describes
them."""
