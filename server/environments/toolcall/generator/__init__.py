"""The shipped dialogues and how they are made."""
