"""What people look at: the terminal today; templates and plots later."""
