"""The pocket pairs: small models, trained for this project, that ship with it; and copies of them as large as real
ones."""
