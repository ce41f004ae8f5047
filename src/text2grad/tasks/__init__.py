"""Data sets and what is asked of them: one file a family. Characters only; a stage is never copied for a data set."""
