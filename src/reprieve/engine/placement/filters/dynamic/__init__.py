"""DynamicResources: device claims, selectors in CEL, and the search for devices."""
