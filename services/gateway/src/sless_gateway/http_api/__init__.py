"""HTTP: the route table, what requests may say, what answers look like."""
