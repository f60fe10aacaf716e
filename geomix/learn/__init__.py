"""Learning: the task, the loop that trains it, experiments, studies and the verbs of the command line."""
