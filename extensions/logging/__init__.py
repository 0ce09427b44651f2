"""What is said while a training runs."""
