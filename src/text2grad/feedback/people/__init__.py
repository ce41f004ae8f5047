"""Feedback from people: critiques, corrections and marked spans in; tasks for labelling tools out."""

from text2grad.feedback.people.argilla import write_argilla
from text2grad.feedback.people.common import PeopleSettings
from text2grad.feedback.people.label_studio import write_label_studio
from text2grad.feedback.people.read import read_people
from text2grad.feedback.rows import Rejected

__all__ = ["PeopleSettings", "Rejected", "read_people", "write_argilla", "write_label_studio"]
