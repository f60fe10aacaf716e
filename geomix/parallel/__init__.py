"""Many processes: ranks of one training, one input spread over ranks, many inputs one by one."""
