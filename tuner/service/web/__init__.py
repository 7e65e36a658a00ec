"""The service over HTTP: knows `Service` and `Access`, but not how a study gets its devices.

server        a process that listens, and how it ends
application   routes, guards and answers put together
settings      where it listens, by which names, and how the way is protected
guards        what every request has to pass: Host, length, no secret in the address
context       what every route has at hand: the service, and who asks
problems      errors as problem JSON
routes/       the addresses, a module for each kind of thing
event_reader  a run's events from any place on
feeds         one reader of a run for all who watch it
event_stream  server-sent events
runs          runs that were read, kept until something happens in them
inside, files files of a run, which are hostile
"""
