"""What people look at: alignments on a terminal, and the page that shows runs (`page.build`)."""
