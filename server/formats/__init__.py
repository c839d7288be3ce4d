"""What goes out: the shapes of answers, a module for each owner of a format."""
