"""An IPython kernel that speaks Jupyter messages on one socket, and a zygote that has it ready."""
