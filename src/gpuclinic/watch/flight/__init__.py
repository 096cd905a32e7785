"""A job's flight recorder, `gpuclinic run`: starts the job unchanged, records beside it, says at its end why it died.

Four kinds of processes, none of which the job depends on to go on working:
- the *front* (front.py) is what the caller started. It starts the job, forwards signals, adopts orphans, and ends as the job ended.
- a *relay* (relay.py) for each standard stream that is a pipe or a terminal passes bytes on and keeps their tail; it has a session of its
  own and outlives the front. A stream that is a file is the job's own; its tail is read at the end.
- the *witness* (witness.py) shares the front's process group, so that a signal to the group can be told from one to the front alone.
- the *recorder* (recorder.py) samples at low priority, notices a hang, and writes the record, the bundle and the answer.
"""
