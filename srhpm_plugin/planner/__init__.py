"""From request, model and machine to a launch plan."""
