"""The service as others see it: HTTP, its description, its page, and who may pass."""
