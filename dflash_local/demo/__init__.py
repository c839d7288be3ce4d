"""The pocket pairs: small models that were trained for this project and ship with it, and copies inflated to real
sizes."""
