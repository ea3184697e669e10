"""The HTTP side: Pulsar's admin REST API, HTTP lookup, health and metrics.

One module per resource, each with a `ROUTES` table; `router` finds the handler on the undecoded
path, `errors` turns every refusal into a status and a reason, `server` runs it all. Handlers only
call the broker's own interfaces: nothing is decided here but HTTP.
"""
