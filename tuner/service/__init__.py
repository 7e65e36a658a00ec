"""A search service: takes study files, queues them, runs each in its own driver, and shows them.

The run folder remains the only source about a search: the server starts drivers and reads what they write. Everything
else that it knows (who submitted what, in which order, with which rights) is in one SQLite file in its data folder. It
imports neither Ray nor torch, and never executes a study file itself.

    web         HTTP: routes, login, limits, streams; knows `Service` alone
    service     what the routes call; each change of a study's state passes here
    supervisor  applies the plan: starts, adopts, pauses, resumes drivers, and follows what they write
    checking    loads a study file in a process with limits, which tells what it declares
    scheduling  which study gets which devices next, and why: a function of the queue, without input or output
    executors   how drivers are started and watched: processes of this machine, or jobs of a Ray cluster
    webhooks    tell addresses of the users' choice: signed, checked where they lead, tried again
    database    SQLite: migrations, one writer, the tables' rows as dataclasses
"""
