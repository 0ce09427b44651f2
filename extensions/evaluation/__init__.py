"""What is measured in evaluation, and what follows from it."""
