"""The HTTP side: Pulsar's admin REST API, HTTP lookup, health and metrics.

There is one module per resource, each with a `ROUTES` table. `router` finds the handler on the
undecoded path, `errors` turns every refusal into a status and a reason, and `server` runs the
application. Handlers only call the broker's own interfaces: they decide nothing but HTTP.
"""
