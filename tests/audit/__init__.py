"""`check` on fake servers, sick and healthy."""
