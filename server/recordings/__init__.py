"""What streams sent, kept for clients that lost their connection."""
