"""Which code a training ran: taken from a repository as it is, and put back elsewhere.

Its files in reading order; each imports only those above it:
"""
