"""Use cases: functions' instances kept as they should be, and told of."""
