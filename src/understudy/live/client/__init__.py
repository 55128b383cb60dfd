"""The service's client: what is sent may be sent again, for every event has an id."""
