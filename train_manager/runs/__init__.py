"""What a run was, and how it is looked at again. Extensions, commands and users come here; the loop does not.

Its rooms; each imports only those above it:

    code       which code a run used, and how it is put back
    store      what a run measured, also sent to other tools
    record     what it was
    comparing  what differs between runs
    showing    a run as a page, which a browser shows
    repeating  a recorded run is run again
"""
