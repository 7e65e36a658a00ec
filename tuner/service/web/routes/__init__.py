"""The addresses of the API, a module for each kind of thing; each route calls the service and shapes its answer."""
